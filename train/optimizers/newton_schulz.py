"""The nearest semi-orthogonal matrix, nearly, by matrix products only."""

from __future__ import annotations

import tensorflow as tf

# steepest at zero, so that small singular values grow fastest; they settle around 1, not at 1
# (Jordan et al. 2024, Muon; cifar10-airbench, airbench94_muon.py)
QUINTIC = (3.4445, -4.7750, 2.0315)


def newton_schulz(matrix: tf.Tensor, steps: int) -> tf.Tensor:
    """U p(S) V' for ``matrix`` = |matrix| U S V', p being ``steps`` times the quintic.

    float32 [rows, columns], also where the network computes in half precision; a matrix of zeros
    stays one. Singular values above a few per cent of the norm end between 0.65 and 1.25 after 5
    steps.
    """
    rows, columns = matrix.shape
    wide = tf.transpose(matrix) if rows > columns else matrix  # the smaller of the two products
    x = tf.math.divide_no_nan(wide, tf.norm(wide))
    a, b, c = QUINTIC
    for _ in range(steps):
        gram = tf.matmul(x, x, transpose_b=True)
        x = a * x + tf.matmul(b * gram + c * tf.matmul(gram, gram), x)
    return tf.transpose(x) if rows > columns else x
