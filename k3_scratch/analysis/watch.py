"""Look into a forward pass without changing the model: hooks on modules, taken off again afterwards."""

from contextlib import contextmanager

import torch


@contextmanager
def watched(modules):
    """{name: module} -> a dict that holds (input, output) of each after the next forward pass, first input only.

        with watched({"norm": model.norm}) as seen:
            model(tokens)
        seen["norm"]                       # (input, output)
    """
    seen = {}

    def watch(name):
        def hook(module, inputs, output):
            seen[name] = (inputs[0], output)
        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in modules.items()]
    try:
        with torch.no_grad():
            yield seen
    finally:
        for handle in handles:
            handle.remove()
