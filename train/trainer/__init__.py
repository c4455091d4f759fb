"""A run from its first step to its last: epochs, evaluation, checkpoints, measurements."""
