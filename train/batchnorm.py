"""Batch-norm statistics: each rank sees its own, evaluation and checkpoints need common ones."""

from __future__ import annotations

import horovod.tensorflow as hvd
import tensorflow as tf


def reduce_statistics(model: tf.keras.Model, size: int) -> None:
    """Collective: give all ranks the moving statistics of the pooled batches.

    mean = mean of means; variance = mean of variances + variance of means (law of total variance),
    as equal shares per rank make them. In fp32 with the means' deviations, not E[x^2] - E[x]^2,
    which cancels.
    """
    layers = [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, tf.keras.layers.BatchNormalization)
    ]
    if size == 1 or not layers:
        return
    means = [layer.moving_mean for layer in layers]
    variances = [layer.moving_variance for layer in layers]
    pooled = hvd.grouped_allreduce([tf.identity(m) for m in means], op=hvd.Average)
    within_and_between = [
        variance + tf.square(mean - common)
        for variance, mean, common in zip(variances, means, pooled, strict=True)
    ]
    spread = hvd.grouped_allreduce(within_and_between, op=hvd.Average)
    for mean, variance, new_mean, new_variance in zip(
        means, variances, pooled, spread, strict=True
    ):
        mean.assign(new_mean)
        variance.assign(new_variance)
