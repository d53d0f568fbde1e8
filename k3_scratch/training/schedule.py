"""The learning rate over time: a short linear warm-up, then a cosine down to a small rest.  K3 report, Optimiser."""

import math


def learning_rate(step, steps, peak, warmup=0.01, final=0.02):
    """Rate of 0-based `step` of `steps`; warmup and final are shares of steps and of peak."""
    rise = max(1, round(steps * warmup))
    if step < rise:
        return peak * (step + 1) / rise
    progress = (step - rise) / max(1, steps - rise)
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2)
