"""The benchmark: how fast and how exact the layers are, against public implementations of the same work.

One process, one thread, CPU time of the process. Every round runs each contender once, in rotated order; a row is a
ratio of medians with the quartiles of the ratios of the single rounds, held against a floor and a target (goals.py).
What was timed is also what is checked: outputs are compared with a float64 token loop, and a contender that computes
something else stops the benchmark.  `k3 bench` runs it, suite.py lists the measurements.
"""
