"""Measurements: a model and tokens in, arrays out."""
