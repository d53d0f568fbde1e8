"""Run one of our models in mlx-lm, by the names of the released checkpoint."""

from importlib.metadata import version

import mlx.core as mx
import numpy as np
from mlx_lm.models.kimi_k3 import Model, ModelArgs

from k3_scratch.export.huggingface import hf_config, hf_tensors

NAME, VERSION = "mlx-lm", version("mlx-lm")
LIMIT = 5e-5                                     # their float32 against our float64, logits of standard deviation 1.5
mx.set_default_device(mx.cpu)                    # on a Mac too: the same code everywhere
mx.disable_compile()                             # on a CPU it would call a C++ compiler


def in_mlx_lm(model):
    """The model as an mlx-lm one, in float32; names, shapes and completeness are checked by its own loader."""
    theirs = Model(ModelArgs.from_dict(hf_config(model.config)))
    tensors = {name: mx.array(x.float().numpy()) for name, x in hf_tensors(model, model.config).items()}
    theirs.load_weights(list(theirs.sanitize(tensors).items()), strict=True)
    theirs.eval()
    mx.eval(theirs.parameters())
    return theirs


def mlx_logits(theirs, parts):
    """Logits of the prompt that comes in `parts`, [1, T_i] each, through its cache.   -> NumPy float32 [1, T, vocab]"""
    cache, logits = theirs.make_cache(), []
    for part in parts:
        logits.append(theirs(mx.array(part.numpy()), cache=cache))
        mx.eval(logits[-1])
    return np.concatenate([np.array(x) for x in logits], 1)


def mlx_greedy(theirs, ids, steps):
    """The most likely continuation of one prompt, a list of ids, through its cache."""
    cache, continuation, given = theirs.make_cache(), [], list(ids)
    for _ in range(steps):
        given = [int(theirs(mx.array([given]), cache=cache)[0, -1].argmax().item())]
        continuation += given
    return continuation
