"""Multiplicative noise: a large batch's gradient made to scatter as that of a small batch.

Hoffer et al. 2017 (1705.08741), section 4: each image's gradient is multiplied by its own
z ~ N(1, s^2). With g_n of mean G and covariance C, the mean over M images of g_n z_n has mean G and
covariance (C + s^2 (C + G G^T)) / M, so s^2 = M / M0 - 1 gives C / M0, the noise of batch M0, up to
G G^T (1/M0 - 1/M).
"""

from __future__ import annotations

import math

import tensorflow as tf

# folded into the step's seed: any number that no layer uses, which count from 0
_STREAM = 1_705_087_410


def sigma_for(global_batch: int, noise_batch: int) -> float:
    """s = sqrt(M / M0 - 1), which is 7.9 for M = 8192 and M0 = 128; 0 where M <= M0, that is no
    noise: the batch already scatters at least as much.

    M is the batch of one optimizer step over all ranks and accumulated batches.
    """
    return math.sqrt(max(0.0, global_batch / noise_batch - 1))


def sample_weights(batch: int | tf.Tensor, sigma: float | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """One weight for each image's loss: float32 [batch], independent N(1, sigma^2).

    seed: int [2], the value of StepSeed: other weights for every rank and step, the same after a
    resume. The weighted losses must be divided by the number of images, not by the weights' sum,
    which would take out the noise along the mean gradient. Metrics stay unweighted.

    With sigma 0 all weights are exactly 1; a caller had better leave them out.
    """
    own = tf.random.experimental.stateless_fold_in(seed, _STREAM)
    return tf.random.stateless_normal([batch], own, mean=1.0, stddev=sigma)
