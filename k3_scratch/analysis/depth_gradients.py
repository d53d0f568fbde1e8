"""How strongly the loss pulls at what each sublayer writes."""

import numpy as np
import torch


def depth_gradients(model, loss):
    """RMS of the gradient of a loss with respect to the output of every sublayer, from bottom to top.     -> [n]

    loss   () -> scalar tensor, computed with `model` when it is called, every sublayer once
    What a sublayer *writes* means the same in every form of residual; what it reads has another scale in each.
    """
    bodies = [body for layer in model.layers
              for body in (layer.self_attn, layer.mlp if layer.is_dense else layer.block_sparse_moe)]
    written = []
    handles = [body.register_forward_hook(lambda module, inputs, output: written.append(output)) for body in bodies]
    try:
        value = loss()
    finally:
        for handle in handles:
            handle.remove()
    gradients = torch.autograd.grad(value, written)
    return np.array([gradient.double().square().mean().sqrt().item() for gradient in gradients])
