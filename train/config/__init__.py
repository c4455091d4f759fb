"""The input contract: what one cell computes, its checks, its plan by steps. No TensorFlow."""
