"""Is a part of a trained model used at all? Let it say nothing and see whether anything changes."""

from contextlib import contextmanager

import torch


@contextmanager
def silenced(*modules):
    """Inside, what these modules give is zeros of the same shape; afterwards they speak again, whatever happened.

        with silenced(model.layers[1].self_attn):
            model(tokens)                                    # as if the second layer had no attention
    """
    handles = [module.register_forward_hook(lambda module, inputs, output: torch.zeros_like(output))
               for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
