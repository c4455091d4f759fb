"""The named optimizers as Keras objects; the distributed step reduces before they see it."""
