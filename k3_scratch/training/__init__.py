"""How the miniature is trained: optimiser, schedule, loop, evaluation, checkpoints."""
