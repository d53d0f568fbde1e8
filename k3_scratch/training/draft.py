"""A draft for speculative decoding: the first layer of a model with its head, trained for seconds on the same data."""

import numpy as np
import torch

from k3_scratch.model import K3
from k3_scratch.training.muon import descend, make_optimizers
from k3_scratch.training.schedule import learning_rate
from k3_scratch.training.shards import ShardedGradient


def first_layer(model):
    """A one-layer K3 with the embedding, the first layer, the head and the norms of `model`, copied.

    The layer stays what it is there: in K3 a KDA layer with a dense FFN, so the draft's memory has one size for ever.
    """
    config = model.config
    config = config.replace(num_layers=1, mla_layers=(0,) if config.is_mla(0) else (),
                            first_k_dense=min(1, config.first_k_dense))
    draft = K3(config).to(model.embed_tokens.weight)
    weights = model.state_dict()
    draft.load_state_dict({name: weights[name] for name in draft.state_dict()})
    return draft.eval()


def train_draft(model, data, *, steps=400, batch_size=16, rate=5e-3, warmup=0.05, final_rate=0.02, seed=0):
    """`first_layer(model)`, trained on `data` by itself.                                      -> draft, [steps] losses

    data     with `batch(rng, batch_size)`, such as tasks.corpus.Corpus: what `model` was trained on
    A model that has learnt its data answers as the data does, so asking it for its own probabilities (distillation)
    would only cost time. Deterministic; the batch of step s is drawn from (seed, s).
    """
    draft = first_layer(model).train()
    optimizers, losses = make_optimizers(draft, rate), []
    with ShardedGradient(draft, 1, "cpu") as gradient:
        for step in range(steps):
            loss = gradient(data.batch(np.random.default_rng([seed, step]), batch_size))
            torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0, error_if_nonfinite=True)
            descend(optimizers, learning_rate(step, steps, rate, warmup, final_rate))
            draft.balance()
            losses.append(loss.item())
    return draft.eval(), losses
