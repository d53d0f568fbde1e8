"""What a process of `run_processes` does: a segment of one text, or a share of one training run.

For tests and notebooks; `torchrun` starts the processes of a run in earnest.
"""

import torch

from k3_scratch.model import K3
from k3_scratch.training.context_parallel import forward_on_ranks
from k3_scratch.training.loop import Trainer
from k3_scratch.training.processes import run_processes
from k3_scratch.training.ranks import Ranks

__all__ = ["run_processes", "segment_logits", "train_together"]


def segment_logits(rank, world, config, weights, tokens, lengths):
    """This process' part of a model's logits, [B, lengths[rank], vocab].

    weights   the model's state_dict; its dtype is that of the result      tokens [B, T]: all processes get all of them
    """
    model = K3(config).to(next(iter(weights.values())).dtype).eval()
    model.load_state_dict(weights)
    return forward_on_ranks(model, tokens, lengths)


def train_together(rank, world, config, options, folder):
    """Train on all processes of the group; what this one saw of it, a dict.

    losses    [steps] float64, of the whole batch
    biases    [steps, MoE layers, E] after each update
    weights   the state_dict at the end;   folder  where rank 0 has written the run
    """
    ranks, losses, biases = Ranks.of_group(), [], []
    trainer = Trainer(config, options, folder, device="cpu", quiet=True, ranks=ranks)
    one_step = trainer.train_step

    def train_step(gradient):
        entry = one_step(gradient)
        losses.append(entry["loss"])
        biases.append(torch.stack([moe.gate.e_score_correction_bias for moe in trainer.model.moe_layers().values()]))
        return entry

    trainer.train_step = train_step
    trainer.run()
    return {"losses": torch.tensor(losses, dtype=torch.float64), "biases": torch.stack(biases),
            "weights": trainer.model.state_dict(), "folder": str(folder)}
