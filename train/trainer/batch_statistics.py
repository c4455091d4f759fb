"""One set of batch-norm statistics for all ranks: each sees its own, evaluation and checkpoints
need common ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import horovod.tensorflow as hvd
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.config.run import RunConfig
from train.data.batches import estimation_batches
from train.data.dataset import Dataset, Pixels
from train.data.sampling import Indices
from train.distributed.world import Runtime
from train.models.layers import graph
from train.models.normalisation import (
    GhostBatchNormalization,
    SyncBatchNormalization,
    batch_norms,
    biased_part,
)
from train.step.tf_distribute import EvaluationModel


def settle_statistics(
    config: RunConfig,
    data: Dataset,
    used: Indices,
    model: tf.keras.Model,
    trained: EvaluationModel | None,
    runtime: Runtime,
    beat: Callable[[str], None],
) -> None:
    """Collective: give ``model`` the moving averages pooled over the ranks, or re-estimated
    statistics, as the technique asks.

    used: training images of the cell. trained: the link to the model that is trained, if that is
    another one. beat: called before each batch: all of them can take long on a CPU.
    """
    beat("")
    rank, size = runtime.rank, runtime.size
    if trained:
        trained.pull()
    if config.technique.bn_statistics == "reestimated":
        images = estimation_batches(config, data, used, rank, size)
        reestimate_statistics(model, _with_beats(images, beat), size)
    else:
        reduce_statistics(model, size)
    if trained:
        trained.push()


def _with_beats(batches: Iterable[Pixels], beat: Callable[[str], None]) -> Iterator[Pixels]:
    for number, images in enumerate(batches, 1):
        beat(f", batch {number}")
        yield images
    beat(", adding up over the ranks")


def reduce_statistics(model: tf.keras.Model, size: int) -> None:
    """Collective: give all ranks the moving statistics of the pooled batches.

    mean = mean of means; variance = mean of variances + variance of means (law of total variance,
    equal shares). In fp32 with the means' deviations: E[x^2] - E[x]^2 cancels. Synchronised layers
    have them in common already.
    """
    layers = [one for one in batch_norms(model) if not isinstance(one, SyncBatchNormalization)]
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


def reestimate_statistics(
    model: tf.keras.Model, batches: Iterable[npt.NDArray[np.uint8]], size: int
) -> None:
    """Collective: set the moving statistics to those of ``batches`` under the present weights.

    Wu and Johnson 2021 (2105.07576), section 3.1: every layer normalises as in training (by the
    batch, the ghost or all ranks), and its statistics are averaged with equal weights: mean =
    E[mu_i], variance = E[var_i] + Var[mu_i], over all that was normalised together, on all ranks.
    Nothing else of the model changes; dropout keeps the mask of the step before.

    batches: uint8 [b, H, W, C] with one b, in whole ghosts; on all ranks the same number.
    """
    layers = batch_norms(model)
    if not layers:
        return
    total = _Moments()
    with _remembering_one_batch(layers):
        forward: tf.types.experimental.ConcreteFunction | None = None
        together = 0
        for images in _ghosts(batches, layers):
            if forward is None:
                together = len(images)
                forward = _forward(model, layers, images.shape)
            total.add(*(part.numpy() for part in forward(tf.constant(images))))
    ends = np.cumsum([layer.moving_mean.shape[0] for layer in layers])[:-1]
    for layer, mean, within, between in zip(
        layers, *(np.split(values, ends) for values in total.result()), strict=True
    ):
        layer.moving_mean.assign(mean)
        layer.moving_variance.assign(within * biased_part(layer, together) + between)
    reduce_statistics(model, size)


def _ghosts(
    batches: Iterable[npt.NDArray[np.uint8]], layers: list[tf.keras.layers.Layer]
) -> Iterator[npt.NDArray[np.uint8]]:
    """The images that are normalised together, one after the other: ghosts do not mix, so the
    statistics of each can be read off the layers after a forward pass over it alone."""
    ghosts = [layer for layer in layers if isinstance(layer, GhostBatchNormalization)]
    for images in batches:
        yield from np.split(images, len(images) // ghosts[0].ghost_batch if ghosts else 1)


@contextmanager
def _remembering_one_batch(layers: list[tf.keras.layers.Layer]) -> Iterator[None]:
    """With momentum 0 the moving statistics are those of the last batch. Earlier graphs keep the
    momentum that is written into them."""
    before = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
        yield
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum


def _forward(
    model: tf.keras.Model, layers: list[tf.keras.layers.Layer], shape: tuple[int, ...]
) -> tf.types.experimental.ConcreteFunction:
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

    return statistics.get_concrete_function(tf.TensorSpec(shape, tf.uint8))


class _Moments:
    """Means and variances in, one batch after the other (Welford 1962); all in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: npt.NDArray[np.float64] = np.zeros(())
        self.squares: npt.NDArray[np.float64] = np.zeros(())  # of the means' deviations
        self.within: npt.NDArray[np.float64] = np.zeros(())

    def add(self, mean: npt.NDArray[np.float32], variance: npt.NDArray[np.float32]) -> None:
        self.count += 1
        off = mean.astype(np.float64) - self.mean
        self.mean = self.mean + off / self.count
        self.squares = self.squares + off * (mean - self.mean)
        self.within = self.within + (variance - self.within) / self.count

    def result(self) -> tuple[npt.NDArray[np.float64], ...]:
        """Mean of means, mean of variances, variance of means."""
        return self.mean, self.within, self.squares / self.count
