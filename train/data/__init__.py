"""Data sets: raw files -> prepared arrays -> batches of each rank; loads no TensorFlow."""
