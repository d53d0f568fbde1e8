"""Public implementations of the same work, each as a function (q, k, v, g, beta) -> o with our shapes.

    kda          transformers, chunk_kimi_delta_attention
    fla          flash-linear-attention, naive_chunk_kda; loaded as one file, because an importable `fla` wants a GPU
    gated_delta  transformers, torch_chunk_gated_delta_rule: an easier problem with one decay per head, g [B, T, H]

Nothing is installed from here. A peer that is missing or of another version raises PeerError with the line to type.
"""

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch.nn.functional as F

PINS = {"transformers": "5.23.0", "einops": "0.8.2", "fla-core": "0.6.0"}
INSTALL = "pip install -r requirements-bench.txt"
INSTALL_FLA = f"pip install --no-deps --target build/peers fla-core=={PINS['fla-core']}"
FOLDER = Path(__file__).resolve().parents[2] / "build" / "peers"
FLA_CHUNK = 64


class PeerError(RuntimeError):
    """A peer cannot be used as it is; the message says what to type."""


@dataclass(frozen=True)
class Peers:
    """What the benchmark is compared with: three functions (q, k, v, g, beta) -> o [B, T, H, V], and their versions."""

    kda: object                     # transformers' chunked KDA; g [B, T, H, K]
    fla: object                     # flash-linear-attention's, padded to whole chunks
    gated_delta: object             # the gated delta rule; g [B, T, H]
    versions: dict                  # {package: version}


def load_peers(folder=FOLDER):
    """Import what requirements-bench.txt installed, and fla-core from `folder`."""
    if importlib.util.find_spec("fla") is not None:
        raise PeerError("fla must not be importable, or transformers takes its GPU code: pip uninstall fla-core "
                        f"flash-linear-attention, then {INSTALL_FLA}")
    versions = {name: _installed(name) for name in ("transformers", "einops")}
    naive = load_fla("ops/kda/naive.py", folder).naive_chunk_kda
    versions["fla-core"] = PINS["fla-core"]
    import transformers
    from transformers.models.kimi_linear import modeling_kimi_linear
    from transformers.models.qwen3_next import modeling_qwen3_next
    transformers.logging.set_verbosity_error()                           # it regrets that no GPU code is there
    return Peers(
        lambda q, k, v, g, beta: modeling_kimi_linear.chunk_kimi_delta_attention(q, k, v, g=g, beta=beta)[0],
        padded(naive, FLA_CHUNK),
        lambda q, k, v, g, beta: modeling_qwen3_next.torch_chunk_gated_delta_rule(q, k, v, g=g, beta=beta)[0],
        versions)


def load_fla(path, folder=FOLDER):
    """One file of fla-core as a module, by its path inside the package: load_fla("ops/kda/naive.py")."""
    _beside(Path(folder))
    return _load_file("fla_" + path.removesuffix(".py").replace("/", "_"), Path(folder) / "fla" / path)


def padded(function, chunk):
    """`function` for any T: filled up to a multiple of `chunk` with tokens that change nothing."""
    def whole(q, k, v, g, beta):
        T = k.shape[1]
        more = -T % chunk
        if more:
            q, k, v, g = (F.pad(x, (0, 0, 0, 0, 0, more)) for x in (q, k, v, g))
            beta = F.pad(beta, (0, 0, 0, more))
        return function(q, k, v, g, beta)[0][:, :T]
    return whole


def _installed(name):
    """The version of an installed package, which must be the pinned one."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise PeerError(f"{name} is not installed; the benchmark needs it: {INSTALL}") from None
    if version != PINS[name]:
        raise PeerError(f"{name} must be {PINS[name]}, but {version} is installed: {INSTALL}")
    return version


def _beside(folder):
    """Refuse a `folder` that does not hold the pinned fla-core."""
    found = [path.name.split("-")[1].removesuffix(".dist") for path in folder.glob("fla_core-*.dist-info")]
    if found != [PINS["fla-core"]]:
        raise PeerError(f"fla-core must be {PINS['fla-core']}, beside the environment, but "
                        f"{', '.join(found) or 'none'} is there: {INSTALL_FLA}")


def _load_file(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
