"""Batch normalisation in its kinds: over a rank's batch, over ghosts of it, over all ranks.

All kinds have Keras' variables (gamma, beta, moving_mean, moving_variance) in float32, whatever the
precision of the activations, and are one layer when they evaluate: weights can be exchanged.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import horovod.tensorflow as hvd
import tensorflow as tf

from train.config.technique import Technique


def normalisation_layer(
    technique: Technique, name: str, size: int, *, last_of_branch: bool = False
) -> tf.keras.layers.Layer | None:
    """The layer that ``technique.normalisation`` names; None where nothing is normalised.

    size: ranks, which synchronised batch norm averages over. last_of_branch: the layer ends a
    residual branch, where ``zero_gamma`` starts gamma at 0, so that the block is its shortcut at
    first (Goyal et al. 2017, 1706.02677, section 5.1).
    """
    chosen: dict[str, Any] = {"momentum": technique.bn_momentum, "name": name}
    if technique.zero_gamma and last_of_branch:
        chosen["gamma_initializer"] = "zeros"
    if technique.normalisation == "batch_norm":
        return tf.keras.layers.BatchNormalization(**chosen)
    if technique.normalisation == "ghost_batch_norm":
        assert technique.ghost_batch is not None  # the contract has seen to it
        return GhostBatchNormalization(
            technique.ghost_batch, momentum_per=technique.bn_momentum_per, **chosen
        )
    if technique.normalisation == "sync_batch_norm":
        return SyncBatchNormalization(size, **chosen)
    return None


class GhostBatchNormalization(tf.keras.layers.BatchNormalization):
    """Batch norm whose statistics are those of ``ghost_batch`` neighbouring images at a time.

    Hoffer et al. 2017 (1705.08741), algorithm 1: gamma and beta are shared by all ghosts, and the
    moving statistics see the ghosts in turn, as small batches would have moved them, each keeping
    ``momentum``; with ``momentum_per`` "batch" each keeps momentum^(1/G), so that the G ghosts of
    a batch keep ``momentum`` together. With ``ghost_batch`` equal to the batch it is Keras' layer,
    moving statistics included: their variance is the unbiased one for images and the biased one for
    vectors, as Keras has it.

    One fused kernel per ghost: slices of the batch are views, so what is paid on top is joining the
    outputs. Keras' own ``virtual_batch_size`` takes every G-th image for a ghost, keeps variables
    of another shape, and does without the fused kernel.
    """

    def __init__(
        self, ghost_batch: int, momentum_per: Literal["ghost", "batch"] = "ghost", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.ghost_batch = ghost_batch
        self.momentum_per = momentum_per

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """inputs: [batch, channels] or [batch, height, width, channels], the batch known.

        Raises:
            ValueError: in training, the batch is no multiple of ``ghost_batch``, or not known.
        """
        if not training or not self.trainable:
            return super().call(inputs, training=False)
        batch = inputs.shape[0]
        if batch is None or batch % self.ghost_batch:
            raise ValueError(
                f"{self.name}: the batch has {batch} images, expected a multiple of ghost_batch "
                f"{self.ghost_batch}, known when the graph is made: drop the rest of the images"
            )
        images = inputs if inputs.shape.rank == 4 else inputs[:, None, None, :]
        parts = [self._fused(ghost) for ghost in tf.split(images, batch // self.ghost_batch)]
        outputs, means, variances = zip(*parts, strict=True)
        unbiased = tf.stack(variances)
        seen = unbiased if images is inputs else unbiased * (1 - 1 / self.ghost_batch)
        kept = self.momentum if self.momentum_per == "ghost" else self.momentum ** (1 / len(parts))
        _move_in_turn(self.moving_mean, tf.stack(means), kept)
        _move_in_turn(self.moving_variance, seen, kept)
        joined = tf.concat(outputs, axis=0)
        return joined if images is inputs else joined[:, 0, 0, :]

    def _fused(self, ghost: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Normalised images, and their mean and unbiased variance per channel."""
        return tf.compat.v1.nn.fused_batch_norm(
            ghost, self.gamma, self.beta, epsilon=self.epsilon, is_training=True
        )


def _move_in_turn(average: tf.Variable, values: tf.Tensor, momentum: float) -> None:
    """``average`` as G exponential updates with the rows of ``values`` [G, channels] leave it.

    With eta = 1 - momentum: (1-eta)^G average + sum_i (1-eta)^(G-i) eta value_i, i from 1 to G. The
    mean of the ghosts once per step would be another average, G times slower.
    """
    count = values.shape[0]
    weights = [(1 - momentum) * momentum ** (count - 1 - i) for i in range(count)]
    average.assign(momentum**count * average + tf.linalg.matvec(values, weights, transpose_a=True))


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """Batch norm with the statistics of all ranks' batches together: one large batch.

    With equal batches the mean is the mean of the ranks' means mu_r, and the variance
    mean_r var_r + mean_r (mu_r - mean)^2 (law of total variance). Horovod's own layer takes
    E[x^2] - E[x]^2, which in float32 loses three digits at a mean of 1000 deviations.

    Two all-reduces forward and two backward, each of one number per channel, named after the layer
    and so matched between ranks in any order. All ranks must train the same number of batches.
    """

    def __init__(self, size: int = 1, **kwargs: Any) -> None:
        """size: ranks that take part."""
        super().__init__(**kwargs)
        self.size = size

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """inputs: [batch, ..., channels], the same batch on all ranks."""
        if not training or not self.trainable:
            return super().call(inputs, training=False)
        x = tf.cast(inputs, tf.float32)
        axes = list(range(x.shape.rank - 1))
        own_mean, own_variance = tf.nn.moments(x, axes)
        mean = self._mean_over_ranks(own_mean, "mean")
        spread = own_variance + tf.square(own_mean - mean)
        variance = self._mean_over_ranks(spread, "variance")
        self._move(mean, self._unbiased(variance, x))
        # not tf.nn.batch_normalization, which takes a difference of large numbers after scaling
        output = (x - mean) * (tf.math.rsqrt(variance + self.epsilon) * self.gamma) + self.beta
        return tf.cast(output, inputs.dtype)

    def _mean_over_ranks(self, value: tf.Tensor, what: str) -> tf.Tensor:
        """Differentiable: the gradient of an average over ranks is the average of gradients."""
        if self.size == 1:
            return value
        return hvd.allreduce(value, op=hvd.Average, name=f"{self.name}_{what}")

    def _unbiased(self, variance: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """The variance that Keras' layer keeps: unbiased for images, biased for vectors."""
        if x.shape.rank != 4:
            return variance
        count = tf.cast(tf.size(x) // x.shape[-1] * self.size, tf.float32)
        return variance * (count / tf.maximum(count - 1, 1))

    def _move(self, mean: tf.Tensor, variance: tf.Tensor) -> None:
        for average, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
            average.assign(self.momentum * average + (1 - self.momentum) * value)


def biased_part(layer: tf.keras.layers.BatchNormalization, images: int) -> float:
    """Factor from the variance that ``layer`` keeps of a batch to that of its numbers themselves.

    (n - 1)/n for feature maps, of which Keras keeps the unbiased variance of n = images x height x
    width numbers per channel, and 1 for vectors.
    """
    shape = layer.input_shape
    if len(shape) != 4:
        return 1.0
    ranks = layer.size if isinstance(layer, SyncBatchNormalization) else 1
    return 1 - 1 / (images * math.prod(shape[1:3]) * ranks)
