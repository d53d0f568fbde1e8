"""The dense gated MLP: first layers, and the shared experts of every MoE."""

from torch import nn

from k3_scratch.layers.situ import activation


class FeedForward(nn.Module):
    """down( act(gate x, up x) ).                                                        [..., D] -> [..., D]"""

    def __init__(self, config, hidden):
        super().__init__()
        self.act = activation(config)
        self.gate_proj = nn.Linear(config.hidden_size, hidden, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(self.act(self.gate_proj(x), self.up_proj(x)))
