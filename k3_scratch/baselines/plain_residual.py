"""The plain pre-norm residual: a running sum that every sublayer reads and adds to.

Used by: nearly all models since GPT-2; Kimi Linear.
Differs from K3's attention residuals by: x_i = h_i and h_{i+1} = h_i + y_i, every earlier output with weight 1.
"""


class PlainResidual:
    """The state is h [B, T, D] itself; see residuals.py for the interface."""

    def __init__(self, config, num_sublayers):
        pass                                                             # nothing to learn

    def modules_for(self, i):
        return {}

    def final_modules(self):
        return {}

    def start(self, h):
        return h

    def read(self, state, i):
        return state

    def write(self, state, i, y):
        return state + y                                                 # a new tensor

    def end(self, state):
        return state
