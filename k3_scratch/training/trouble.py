"""When a loss is no number any more: say where it came from."""

import torch

from k3_scratch.training.evaluate import batch_loss


class NotFinite(RuntimeError):
    """The loss or a gradient is NaN or infinite; the message says where it first appears."""


def explain_not_finite(model, batch, step, loss, device="cpu"):
    """The error to raise when update `step` went wrong: forward once more, watching each module, then the gradients."""
    bad_weights = [name for name, p in model.named_parameters() if not torch.isfinite(p).all()]
    if bad_weights:
        return NotFinite(f"step {step}: the parameter {bad_weights[0]} is not finite (and {len(bad_weights) - 1} "
                         "others); the last checkpoint, if there is one, is good")
    first = []

    def watch(name):
        def hook(module, inputs, output):
            if not first and torch.is_tensor(output) and not torch.isfinite(output).all():
                first.append(f"{name} ({type(module).__name__})")
        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in model.named_modules() if name]
    with torch.no_grad():
        batch_loss(model, batch, device)
    for handle in handles:
        handle.remove()
    if first:
        where = f"the first output that is not finite comes from {first[0]}"
    else:
        bad = [name for name, p in model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
        where = (f"the forward pass is finite, the gradient of {bad[-1]} is not" if bad
                 else "only the loss or the gradient's norm itself overflowed")
    return NotFinite(f"step {step}: loss {loss}; {where}. Try a smaller learning rate; the last checkpoint, if there "
                     "is one, is good")
