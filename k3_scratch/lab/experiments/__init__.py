"""The experiments, one file each; a file exports EXPERIMENT and is found by its name."""
