# ---
# jupyter:
#   k3:
#     title: A tiny notebook
#     minutes: {read: 1, exercises: 2, run: 1 second}
#     needs: [nothing]
#     objectives: [run a test]
# ---

# %% [markdown]
# # 01 · A tiny notebook
#
# Does the machine work? See [chapter 00](00_the_map.ipynb) and [this](../README.md).

# %%
import numpy as np

from k3_scratch.course import check, progress, show
from k3_scratch.plots.magnitudes import magnitudes
from k3_scratch.reference.delta_rule import delta_step

# %% [markdown]
# ### Exercise 1.3: one write
#
# Write it.

# %% [markdown] tags=["hint"]
# First recall.

# %% id="1.3" minutes=2 difficulty=1
def my_delta_step(state, k, v, beta):
    """One write.   state [K, V], k [K], v [V], beta -> [K, V]"""
    # BEGIN SOLUTION
    recalled = k @ state
    return state + beta * np.outer(k, v - recalled)
    # END SOLUTION

# %%
check("1.3", my_delta_step)

# %%
state = delta_step(np.zeros((3, 2)), [1, 0, 0], [4.0, 5.0], 0.5)
headline = float(state.sum())
print(f"headline {headline}")
show(magnitudes(["a", "b"], [1, headline]), "Two bars, the second higher than the first", name="01_tiny")

# %% tags=["remove"]
assert headline == 4.5

# %% [markdown]
# The second bar is 4.5 high (measured here).

# %% tags=["solution-only"]
print("with solutions")

# %%
progress()

# %% [markdown]
# **Summary.** It does.
