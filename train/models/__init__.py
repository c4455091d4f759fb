"""The networks, their layers, and what is computed for them from the training images."""
