"""Data sets: raw files -> prepared arrays -> batches per rank. Loads neither TensorFlow nor Horovod."""
