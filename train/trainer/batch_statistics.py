"""One set of batch-norm statistics for all ranks: each sees its own, evaluation and checkpoints
need common ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from train.config.run import RunConfig
from train.data.dataset import Dataset, Pixels
from train.data.sampling import Indices, shuffled
from train.distributed.communicator import Ranks, allreduce_mean
from train.distributed.watchdog import WAITING
from train.models.layers import graph
from train.models.normalisation import (
    GhostBatchNormalization,
    SyncBatchNormalization,
    batch_norms,
    biased_part,
)

#: Training images from which batch-norm statistics are estimated again.
ESTIMATED_FROM = 20_000


def settle_statistics(
    config: RunConfig, data: Dataset, used: Indices, model: tf.keras.Model, ranks: Ranks,
    beat: Callable[[str], None], most: int | None = None,
) -> None:  # fmt: skip
    """Collective, two messages: give the evaluated model the moving averages pooled over the ranks,
    or re-estimated statistics, as the technique asks; of ``most`` batches of each rank."""
    beat("")

    def estimated_from() -> Iterator[Pixels]:
        batches = estimation_batches(config, data, used, ranks.rank, ranks.size)
        for number, images in enumerate(islice(batches, most), 1):
            beat(f", batch {number}")
            yield images
        beat(WAITING)

    if config.technique.bn_statistics == "reestimated":
        reestimate_statistics(model, estimated_from(), ranks.size)
    else:
        beat(WAITING)
        reduce_statistics(model, ranks.size)


def estimation_batches(
    config: RunConfig, data: Dataset, used: Indices, rank: int, size: int
) -> Iterator[Pixels]:
    """This rank's training images as they are, uint8 [b, H, W, C], the same in every epoch and for
    every seed: whole batches, so that layers normalise over as many images as in training, as many
    on every rank as fit in 20,000 images, at least one."""
    step = size * config.batch_per_rank
    batches = max(1, min(ESTIMATED_FROM, len(used)) // step)
    own = used[shuffled(len(used), 0)][rank : batches * step : size]
    for batch in own.reshape(batches, config.batch_per_rank):
        yield data.train_x[np.sort(batch)]


def reduce_statistics(model: tf.keras.Model, size: int) -> None:
    """Collective: give all ranks the moving statistics of the pooled batches.

    mean = mean of means; variance = mean of variances + variance of means (law of total variance,
    equal shares). In fp32 with the means' deviations: E[x^2] - E[x]^2 cancels. Synchronised layers
    have them in common already.
    """
    layers = [one for one in batch_norms(model) if not isinstance(one, SyncBatchNormalization)]
    if size == 1 or not layers:
        return
    own = tf.concat([layer.moving_mean for layer in layers], axis=0)
    mean = allreduce_mean(own, "moving_means")
    within = tf.concat([layer.moving_variance for layer in layers], axis=0)
    variance = allreduce_mean(within + tf.square(own - mean), "moving_variances")
    counts = [layer.moving_mean.shape[0] for layer in layers]
    for layer, *of in zip(layers, tf.split(mean, counts), tf.split(variance, counts), strict=True):
        layer.moving_mean.assign(of[0])
        layer.moving_variance.assign(of[1])


def reestimate_statistics(model: tf.keras.Model, batches: Iterable[Pixels], size: int) -> None:
    """Collective: set the moving statistics to those of ``batches`` under the present weights.

    Wu and Johnson 2021 (2105.07576), section 3.1: every layer normalises as in training (by the
    batch, the ghost or all ranks), and its statistics are averaged with equal weights: mean =
    E[mu_i], variance = E[var_i] + Var[mu_i], over all that was normalised together, on all ranks.
    Nothing else of the model changes; dropout keeps the mask of the step before.

    batches: uint8 [b, H, W, C] with one b, in whole ghosts; on all ranks the same number.
    """
    layers = batch_norms(model)
    # Welford 1962, in float64: mean of means, squares of their deviations, mean of variances
    center = squares = within = np.zeros(())
    for count, images in enumerate(_ghosts(batches, layers), 1):
        forward, parts = _one_batch(model, images.shape)
        mean, variance = (part.numpy() for part in forward(tf.constant(images)))
        off = mean.astype(np.float64) - center
        center = center + off / count
        squares = squares + off * (mean - center)
        within = within + (variance - within) / count
    ends = np.cumsum([layer.moving_mean.shape[0] for layer in layers])[:-1]
    moments = (np.split(values, ends) for values in (center, within, squares / count))
    for layer, part, mean, kept, between in zip(layers, parts, *moments, strict=True):
        layer.moving_mean.assign(mean)
        layer.moving_variance.assign(kept * part + between)
    reduce_statistics(model, size)


def _ghosts(batches: Iterable[Pixels], layers: list[tf.keras.layers.Layer]) -> Iterator[Pixels]:
    """The images that are normalised together, one after the other: ghosts do not mix, so the
    statistics of each can be read off the layers after a forward pass over it alone."""
    ghosts = [layer for layer in layers if isinstance(layer, GhostBatchNormalization)]
    for images in batches:
        yield from np.split(images, len(images) // ghosts[0].ghost_batch if ghosts else 1)


@lru_cache(1)  # all epochs of a run need one
def _one_batch(model: tf.keras.Model, shape: tuple[int, ...]) -> tuple[Any, list[float]]:
    """A graph from images to their moving statistics, which with momentum 0 are those of this batch
    alone, and :func:`biased_part` of each layer. Earlier graphs keep the momentum that is written
    into them."""
    layers = batch_norms(model)

    @graph
    def statistics(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        for layer in layers:  # where Keras moves by a difference, this makes it exact
            layer.moving_mean.assign(tf.zeros_like(layer.moving_mean))
            layer.moving_variance.assign(tf.zeros_like(layer.moving_variance))
        model(images, training=True)
        return (
            tf.concat([layer.moving_mean for layer in layers], axis=0),
            tf.concat([layer.moving_variance for layer in layers], axis=0),
        )

    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
        forward = statistics.get_concrete_function(tf.TensorSpec(shape, tf.uint8))
        return forward, [biased_part(layer, shape[0]) for layer in layers]
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
