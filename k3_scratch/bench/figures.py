"""From the arrays of a result to its figures."""

from pathlib import Path

from k3_scratch.plots.bench_decode import decode_cost
from k3_scratch.plots.bench_moe import dispatch_times
from k3_scratch.plots.bench_step import step_parts
from k3_scratch.plots.bench_time import time_against_length
from k3_scratch.plots.error_curves import error_curves
from k3_scratch.plots.style import save

# file, name of its arrays, how they become a picture
FIGURES = (
    ("bench_time.png", "time", lambda a: time_against_length(
        a["lengths"], {kind: {name: line["milliseconds"] for name, line in a[kind].items()} for kind in
                       ("forward", "fwd+bwd")},
        {kind: {name: line["slope"] for name, line in a[kind].items()} for kind in ("forward", "fwd+bwd")})),
    ("bench_decode.png", "decode", lambda a: decode_cost(a["contexts"], a["microseconds"], a["bytes"])),
    ("bench_moe.png", "moe", lambda a: dispatch_times(a["experts"], a["milliseconds"])),
    ("bench_step.png", "step", lambda a: step_parts(a["milliseconds"], a["whole"])),
    ("bench_error.png", "error", lambda a: error_curves(
        a["chunks"], a["errors"], title="Float32 errors when every gate is -5", x_label="C, tokens per chunk",
        y_label="largest error over largest output")),
)


def write_figures(result, out):
    """Draw every figure that `result` (as in bench.json) has arrays for; -> [Path]"""
    arrays = result["arrays"]
    return [save(draw(arrays[name]), Path(out) / file) for file, name, draw in FIGURES if name in arrays]
