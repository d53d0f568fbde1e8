"""`k3 export`: write a trained model for other programs."""

import sys
from pathlib import Path

import torch
from tqdm import tqdm

from k3_scratch.export.files import ExportError
from k3_scratch.export.gguf import to_gguf
from k3_scratch.export.huggingface import to_huggingface
from k3_scratch.export.mxfp4 import BLOCK, error_statistics
from k3_scratch.export.verify import verify
from k3_scratch.pretrained import FOLDER, pretrained
from k3_scratch.training.run_folder import load_model


def add_to(subparsers):
    parser = subparsers.add_parser("export", help="write a trained model in the released layout or as GGUF")
    parser.add_argument("run_folder", metavar="RUN", help="a finished run, or the name of a published model: mini")
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder (hf) or file (gguf) to write")
    parser.add_argument("--format", choices=("hf", "gguf"), required=True,
                        help="hf: config.json and safetensors; gguf: one file for llama.cpp")
    parser.add_argument("--mxfp4", action="store_true", help="pack the routed experts to four bits a value")
    parser.add_argument("--force", action="store_true", help="replace an earlier export")
    parser.set_defaults(run=run)


def run(arguments):
    model = trained_model(arguments.run_folder)
    options = {"mxfp4": arguments.mxfp4, "force": arguments.force}
    with tqdm(unit="tensor", dynamic_ncols=True, leave=False, disable=not sys.stderr.isatty()) as bar:
        def progress(name, number, total):
            bar.total = total
            bar.update(number - bar.n)
        if arguments.format == "hf":
            remarks = to_huggingface(model, arguments.out, progress=progress, **options)
        else:
            remarks = to_gguf(model, arguments.out, progress=progress, **options)
    report = checked(arguments.out)
    print(f"{arguments.out}: {report.tensors} tensors, {report.nbytes:,} bytes")
    if arguments.mxfp4:
        print(packing_line(model))
    for remark in remarks or ():
        print(f"note: {remark}")


def trained_model(run_folder):
    """The model of a finished run, or the published one of that name when there is no such folder."""
    published = sorted(path.parent.name for path in FOLDER.glob("*/model.safetensors"))
    if not Path(run_folder).exists() and run_folder not in published:
        raise ExportError(f"{run_folder}: no such run folder, and no published model of that name "
                          f"({', '.join(published)})")
    return load_model(run_folder) if Path(run_folder).exists() else pretrained(run_folder)


def checked(out, model=None):
    """`verify`'s report; ExportError with all its problems in one line when it has any."""
    report = verify(out, model)
    if not report.ok:
        raise ExportError(f"{out}: {'; '.join(report.problems)}")
    return report


def packing_line(model):
    """What four bits do to the routed experts, all layers together, in one line."""
    experts = [x for name, x in model.state_dict().items() if ".experts." in name]
    if not experts:
        return "MXFP4: the model has no routed experts"
    lost = error_statistics(torch.cat([x.reshape(-1, BLOCK) for x in experts]))
    return (f"MXFP4: relative error {lost['relative_rms']:.4f} ({lost['snr_db']:.1f} dB), "
            f"largest {lost['largest']:.4g}, {lost['saturated']:.2%} of the values saturate, "
            f"{lost['zeroed']:.2%} become zero")
