"""The output contract: the record, the files of a cell's folder, atomic writing. No TensorFlow."""
