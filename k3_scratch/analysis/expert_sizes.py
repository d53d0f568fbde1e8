"""How large the numbers inside a mixture of experts become: activations, and the sum that W_up reads."""

from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class ExpertSizes:
    """What was seen since the last `clear`: the largest |act(gate, up)|, and the RMS of each token's sum of experts."""

    largest: float = 0.0
    sums: list = field(default_factory=list)     # a tensor a forward pass and layer, one number a token

    def clear(self):
        """Begin again."""
        self.largest = 0.0
        self.sums.clear()


@contextmanager
def expert_sizes(parts):
    """[LatentMoE with a latent] -> an `ExpertSizes` that is filled by every forward pass inside the block.

    Seen is what the routed experts do, not the shared one. The parts work as before afterwards.
    """
    seen, before = ExpertSizes(), [part.act for part in parts]

    def noting(act):
        def noted(gate, up):
            hidden = act(gate, up)
            if hidden.numel():
                seen.largest = max(seen.largest, hidden.detach().abs().max().item())
            return hidden
        return noted

    def read(_, inputs):
        seen.sums.append(inputs[0].detach().square().mean(-1).sqrt().flatten())
    for part in parts:
        part.act = noting(part.act)
    handles = [part.routed_expert_up_proj.register_forward_pre_hook(read) for part in parts]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
        for part, act in zip(parts, before, strict=True):
            part.act = act
