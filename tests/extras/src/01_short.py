# ---
# jupyter:
#   k3:
#     title: A short notebook
#     minutes: {read: 1, exercises: 3, run: 1 second}
#     needs: [nothing]
#     objectives: [be marked by several programs]
# ---

# %% [markdown]
# # 01 · A short notebook
#
# Do three programs give the same marks?

# %%
import numpy as np

from k3_scratch.course import check

# %% [markdown]
# ### Exercise 1.1: when the state is smaller
#
# From which whole T on?

# %% [markdown] tags=["hint"]
# Divide.

# %% id="1.1" minutes=1 difficulty=1
# BEGIN SOLUTION
my_tokens = 128 * 128 // (128 + 128) + 1
# END SOLUTION

# %%
check("1.1", my_tokens)

# %% [markdown]
# ### Exercise 1.3: one write
#
# Write it.

# %% [markdown] tags=["hint"]
# First recall.

# %% id="1.3" minutes=1 difficulty=2
def my_delta_step(state, k, v, beta):
    """One write.   state [K, V], k [K], v [V], beta -> [K, V]"""
    # BEGIN SOLUTION
    recalled = k @ state
    return state + beta * np.outer(k, v - recalled)
    # END SOLUTION

# %%
check("1.3", my_delta_step)

# %% [markdown]
# ### Exercise 1.5: the best state
#
# In the sense of least squares.

# %% [markdown] tags=["hint"]
# NumPy has it.

# %% id="1.5" minutes=1 difficulty=3
def my_best_state(k, v):
    """k [n, K], v [n, V] -> [K, V]"""
    # BEGIN SOLUTION
    return np.linalg.lstsq(k, v, rcond=None)[0]
    # END SOLUTION

# %%
check("1.5", my_best_state)

# %% [markdown]
# **Summary.** They do.
