"""Torch twins of `k3_scratch.reference`: what the model is made of, one operation a file."""
