"""How a hunt stands: which planted faults are left in a set of texts, and what has become wrong that was right.

Each file with a fault is asked alone, in a package that is healthy otherwise, so that no fault hides another. A file is
compared with the package by what it does, never by its text: however it was mended, it is mended.
"""

import functools
from dataclasses import dataclass

import torch

from k3_scratch.course.faults import FAULTS
from k3_scratch.course.faults.alive import alive, small, tokens
from k3_scratch.course.faults.fault import planted
from k3_scratch.course.faults.package import healthy, load, package_texts
from k3_scratch.course.faults.techniques import pieces


@dataclass(frozen=True)
class Standing:
    """left: the faults that are still there; broken: files in which something else is wrong now; error: or why nothing
    can be said, one sentence."""

    left: tuple = ()
    broken: tuple = ()
    error: str = ""


def standing(texts, faults):
    """Look at {file: text} into which `faults`, no two in a file, had been planted.                    -> Standing"""
    right, wounded = package_texts(), planted(faults)
    missing = sorted(set(right) - set(texts))
    if missing:
        return Standing(tuple(faults), error=f"{missing[0]} is missing")
    untouched = {fault.file for fault in faults if texts[fault.file] == wounded[fault.file]}
    try:
        kit = load(texts)
    except Exception as error:
        return Standing(tuple(faults), error=_told(error))
    if not untouched and not _differs(kit, FAULTS.values()):
        return Standing()
    own = {file: text for file, text in texts.items() if file not in right}              # files the student has added
    left, broken = [fault for fault in faults if fault.file in untouched], []
    for file in sorted(right):
        here = [fault for fault in faults if fault.file == file]
        if texts[file] == right[file] or file in untouched:
            continue
        wrong = _asked_alone({**right, **own, file: texts[file]}, file)
        if here and here[0].id in wrong:
            left.append(here[0])
        elif wrong:
            broken.append(file)
    return Standing(tuple(fault for fault in faults if fault in left), tuple(broken))


def _asked_alone(texts, file):
    """Names of what differs from the package when only one file is not the package's."""
    try:
        kit = load(texts)
    except Exception:
        return {"it does not load", *(fault.id for fault in FAULTS.values() if fault.file == file)}
    return _differs(kit, [fault for fault in FAULTS.values() if fault.file == file])


def _differs(kit, faults):
    """Ids of the faults whose probe differs, and names of observations of the whole that do."""
    wrong = {fault.id for fault in faults if not _alike(fault.probe, kit, _probed(fault.id))}
    if not wrong:
        wrong |= {look.__name__ for look in WHOLE if not _alike(look, kit, _seen(look))}
    return wrong


def _alike(look, kit, wanted):
    try:
        came = _flat(look(kit))
    except Exception:
        return False
    return len(came) == len(wanted) and all(map(_close, came, wanted))


def _close(one, other):
    if one.shape != other.shape or (one.dtype.is_floating_point and one.dtype != other.dtype):
        return False
    exact = one.dtype not in (torch.float32, torch.bfloat16)
    return torch.allclose(one.double(), other.double(), rtol=1e-7 if exact else 1e-4, atol=1e-9 if exact else 1e-5)


def _flat(observed):
    if isinstance(observed, (tuple, list)):
        return [tensor for part in observed for tensor in _flat(part)]
    if not torch.is_tensor(observed):
        return [torch.tensor(observed)]
    return [observed.detach()]


@functools.cache
def _probed(name):
    return _flat(FAULTS[name].probe(healthy()))


@functools.cache
def _seen(look):
    return _flat(look(healthy()))


def _told(error):
    """An exception while loading, with its place."""
    if isinstance(error, SyntaxError):
        place = f"line {error.lineno} of {str(error.filename).strip('<>')}"
        return f"it does not load: {type(error).__name__} in {place}: {error.msg}"
    return f"it does not load: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


# ---- the whole, from several sides

def _model(kit, **changes):
    """The healthy package's numbers in the kit's model."""
    model = alive(kit, **changes)
    model.load_state_dict(alive(healthy(), **changes).state_dict())
    return model


def logits_and_gradients(kit):
    """Packed documents, and the gradient of every parameter."""
    model, ids = _model(kit), tokens(1, 2, 39)
    loss = model(ids, documents=torch.tensor([[0] * 20 + [1] * 19] * 2)).square().mean() + model(ids[:, :5]).sum()
    parameters = [p for name, p in sorted(model.named_parameters()) if "layers.0.self_attention_res" not in name]
    return loss, torch.autograd.grad(loss, parameters)


@torch.no_grad()
def pieces_with_pads(kit):
    """Padded rows with a cache and without, a copy that was reset, and drawn continuations."""
    model, ids = _model(kit, attn_res_block_size=2), tokens(1, 2, 9)
    mask = torch.arange(9)[None] >= torch.tensor([[3], [0]])
    cache = model.new_cache(2)
    first = model(ids[:, :6], cache, mask=mask[:, :6])
    other = cache.clone()
    other.reset()
    return (first[mask[:, :6]], pieces(model, ids[:, 6:], [2, 1], cache), model(ids, mask=mask)[mask], cache.nbytes(),
            model(ids[:, :4], other), kit.generate.generate(model, [[1, 2, 3], [4, 5]], 3, temperature=0.8, top_k=5))


def two_updates(kit):
    """All weights, biases and counts after two updates with recomputation."""
    model, ids = _model(kit).train(), tokens(1, 2, 12)
    model.recompute = True
    optimizers = kit.training.muon.make_optimizers(model, 0.02)
    for step in range(2):
        torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = kit.training.schedule.learning_rate(step, 4, 0.02)
            optimizer.step()
            optimizer.zero_grad()
        model.balance()
    counts = [moe.expert_counts for moe in model.moe_layers().values()]
    return [value for _, value in sorted(model.state_dict().items())], counts


def sizes(kit):
    """Configurations, the schedule, and the shapes of a small model."""
    presets = [repr(kit.config.preset(name)) for name in ("nano", "mini", "kimi_linear_48b", "kimi_k3")]
    same = [one == other for one, other in zip(presets, _presets(), strict=True)]
    rates = [kit.training.schedule.learning_rate(step, 40, 1e-2, 0.1, 0.05) for step in range(40)]
    built = sorted((name, list(p.shape)) for name, p in kit.model.K3(small(kit, num_layers=6)).named_parameters())
    return same, rates, [number for _, shape in built for number in shape]


@functools.cache
def _presets():
    return tuple(repr(healthy().config.preset(name)) for name in ("nano", "mini", "kimi_linear_48b", "kimi_k3"))


WHOLE = (logits_and_gradients, pieces_with_pads, two_updates, sizes)
