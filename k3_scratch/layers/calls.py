"""A call of a whole model, whatever its layers: what it may be given, what is kept between calls, evaluation mode."""

import copy
from contextlib import contextmanager

import torch

from k3_scratch.shapes import ShapeError, check_shapes


def check_call(name, vocab_size, tokens, cache=None, mask=None, documents=None, gradients=False):
    """Refuse what cannot be meant, with the argument's name.

    name       of the model, for the messages
    tokens     [B, T] whole numbers below vocab_size; mask [B, T] bool and documents [B, T] as `K3.forward` has them
    cache      `LayerCaches` of earlier tokens; gradients  will the call be differentiated? A cache cannot be
    Raises ShapeError or ValueError.
    """
    given = {"tokens": tokens, "mask": mask, "documents": documents}
    B = check_shapes(name, **{argument: (x, "B T") for argument, x in given.items() if x is not None})["B"]
    if tokens.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name}: tokens must be whole numbers (int64), but {tokens.dtype} came")
    if tokens.numel() and not tokens.is_meta:
        low, high = tokens.min().item(), tokens.max().item()
        if low < 0 or high >= vocab_size:
            raise ValueError(f"{name}: tokens must be from 0 to {vocab_size - 1}, but {low if low < 0 else high} came")
    if cache is not None:
        if documents is not None:
            raise ValueError(f"{name}: documents packs whole sequences; it cannot be used together with a cache")
        if gradients:
            raise ValueError(f"{name}: a cache holds numbers without gradients; use model.eval() or torch.no_grad() "
                             "with it")
        if cache.batch_size != B:
            raise ShapeError(f"{name}: the cache was made for batch {cache.batch_size}, but tokens has batch {B}")
    if mask is not None:
        _check_left_padding(name, mask, None if cache is None else cache.started)


def _check_left_padding(name, mask, started):
    if mask.dtype != torch.bool:
        raise ValueError(f"{name}: mask must be bool (True = a real token), but {mask.dtype} came")
    late = mask[:, :-1] & ~mask[:, 1:]
    if started is not None:
        late = torch.cat([started.unsqueeze(1) & ~mask[:, :1], late], 1)
    if late.any():
        raise ValueError(f"{name}: mask must be left padding: once a row has a real token, no pad may follow "
                         f"(row {late.any(1).nonzero()[0].item()})")


class LayerCaches:
    """The memory of `batch_size` sequences: a cache for each layer, with `reset`, `clone` and `nbytes`.

    length    tokens fed so far, pads included
    started   [B] bool, True once a row has seen a real token (after that no pad may follow); None before the first
    """

    def __init__(self, layers, batch_size):
        self.layers, self.batch_size = layers, batch_size
        self.length, self.started = 0, None

    def begin(self, tokens, mask):
        """Note which rows have a real token once `tokens` [B, T] are fed."""
        if tokens.shape[1]:
            now = torch.ones_like(tokens[:, 0], dtype=torch.bool) if mask is None else mask[:, -1]
            self.started = now if self.started is None else self.started | now

    def reset(self):
        """Forget everything, keep the room."""
        for layer in self.layers:
            layer.reset()
        self.length, self.started = 0, None

    def clone(self):
        """An independent copy: feeding one never changes the other."""
        other = copy.copy(self)                                          # `started` is replaced, never written into
        other.layers = [layer.clone() for layer in self.layers]
        return other

    def nbytes(self):
        """Bytes in use, all layers together."""
        return sum(layer.nbytes() for layer in self.layers)


@contextmanager
def evaluating(model):
    """Evaluation mode inside, the model's own mode again afterwards, whatever happens."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
