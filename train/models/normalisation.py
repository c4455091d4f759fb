"""Batch normalisation in its kinds: over a rank's batch, over ghosts of it, over all ranks.

All kinds have Keras' variables (gamma, beta, moving_mean, moving_variance) in float32, whatever the
precision of the activations, and are one layer when they evaluate: weights can be exchanged.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
from typing import Any, Literal

import tensorflow as tf

from train.config.optimizer import Muon
from train.config.technique import Technique
from train.distributed.communicator import allreduce_mean
from train.tensorflow_internals import all_layers, calls, source

L = tf.keras.layers


class _OwnBatchNormalization(tf.keras.layers.BatchNormalization):
    """Keras' layer, which evaluates; a subclass normalises in training."""

    masked = False  # whether a call got a mask, which does not count here
    numbers: int  # per channel, of what the variance was taken of in the last call

    def call(self, inputs: tf.Tensor, training: bool = False, mask: Any = None) -> tf.Tensor:
        """inputs: [batch, ..., channels], or with the channels on another axis."""
        if not training or not self.trainable:
            return super().call(inputs, training=False)
        self.masked |= mask is not None
        (axis,), last = self.axis, inputs.shape.rank - 1
        if axis == last:
            return self._normalised(inputs)
        order = [*(n for n in range(last + 1) if n != axis), axis]
        output = self._normalised(tf.transpose(inputs, order))
        return tf.transpose(output, [*range(axis), last, *range(axis, last)])


class GhostBatchNormalization(_OwnBatchNormalization):
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

    ghost_batch: int
    momentum_per: Literal["ghost", "batch"]

    def _normalised(self, inputs: tf.Tensor) -> tf.Tensor:
        """Raises: ValueError: the batch is no multiple of ``ghost_batch``, or not known."""
        self.rows = batch = inputs.shape[0]
        if batch is None or batch % self.ghost_batch:
            raise ValueError(
                f"{self.name}: the batch has {batch} images, expected a multiple of ghost_batch "
                f"{self.ghost_batch}, known when the graph is made: drop the rest of the images"
            )
        is_map = inputs.shape.rank == 4
        images = inputs if is_map else tf.reshape(inputs, [batch, -1, 1, inputs.shape[-1]])
        ghosts = tf.split(images, batch // self.ghost_batch)
        fused = partial(
            tf.compat.v1.nn.fused_batch_norm,
            scale=tf.ones(images.shape[-1]) if self.gamma is None else self.gamma,
            offset=tf.zeros(images.shape[-1]) if self.beta is None else self.beta,
            epsilon=self.epsilon,
            is_training=True,
        )
        outputs, means, variances = zip(*map(fused, ghosts), strict=True)
        unbiased = tf.stack(variances)
        self.numbers = ghosts[0].shape[:3].num_elements()
        seen = unbiased if self.fused else unbiased * (1 - 1 / self.numbers)
        kept = self.momentum if self.momentum_per == "ghost" else self.momentum ** (1 / len(ghosts))
        _move_in_turn(self.moving_mean, tf.stack(means), kept)
        _move_in_turn(self.moving_variance, seen, kept)
        joined = tf.concat(outputs, axis=0)
        return joined if is_map else tf.reshape(joined, tf.shape(inputs))


def _move_in_turn(average: tf.Variable, values: tf.Tensor, momentum: float) -> None:
    """``average`` as G exponential updates with the rows of ``values`` [G, channels] leave it.

    With eta = 1 - momentum: (1-eta)^G average + sum_i (1-eta)^(G-i) eta value_i, i from 1 to G. The
    mean of the ghosts once per step would be another average, G times slower.
    """
    count = values.shape[0]
    weights = [(1 - momentum) * momentum ** (count - 1 - i) for i in range(count)]
    average.assign(momentum**count * average + tf.linalg.matvec(values, weights, transpose_a=True))


class SyncBatchNormalization(_OwnBatchNormalization):
    """Batch norm with the statistics of all ranks' batches together: one large batch.

    With equal batches the mean is the mean of the ranks' means mu_r, and the variance
    mean_r(var_r + mu_r^2) - mean^2. One all-reduce forward and one backward carry both, named after
    the layer's place in the graph and so matched between ranks in any order. All ranks must train
    the same number of batches.

    The difference is taken in float64, where it is off by about 2^-50 mean^2: 1e-9 of the variance
    at a mean of 1000 deviations, and a quarter of what rounding the mu_r to float32 may add to it,
    (2^-24 mean)^2. In float32, as in Horovod's own layer, a quarter of the variance would be lost.
    """

    size: int  # ranks that take part

    def _normalised(self, inputs: tf.Tensor) -> tf.Tensor:
        x = tf.cast(inputs, tf.float32)
        self.numbers = (x.shape[:-1].num_elements() or 0) * self.size
        axes = list(range(x.shape.rank - 1))
        mean, variance = tf.nn.moments(x, axes)
        if self.size > 1:
            mean, variance = self._over_ranks(mean, variance)
        kept = variance
        if self.fused:  # as Keras' layer keeps it: unbiased for images, biased for vectors
            count = tf.cast(tf.size(x) // x.shape[-1] * self.size, tf.float32)
            kept = variance * (count / tf.maximum(count - 1, 1))
        for average, value in ((self.moving_mean, mean), (self.moving_variance, kept)):
            average.assign(self.momentum * average + (1 - self.momentum) * value)
        # not tf.nn.batch_normalization, which takes a difference of large numbers after scaling
        scale = tf.math.rsqrt(variance + self.epsilon)
        output = (x - mean) * (scale if self.gamma is None else scale * self.gamma)
        if self.beta is not None:
            output += self.beta
        return tf.cast(output, inputs.dtype)

    def _over_ranks(self, mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Of this rank's batch, to those of all; float32 [channels]."""
        mean, variance = (tf.cast(own, tf.float64) for own in (mean, variance))
        place = tf.get_current_name_scope().replace("/", ".")  # layers of one name may be several
        moments = allreduce_mean(tf.concat([mean, variance + tf.square(mean)], 0), place)
        mean, square = tf.split(moments, 2)
        variance = tf.maximum(square - tf.square(mean), 0)
        return tf.cast(mean, tf.float32), tf.cast(variance, tf.float32)


def biased_part(layer: tf.keras.layers.BatchNormalization, images: int) -> float:
    """Factor from the variance that ``layer`` keeps of a batch to that of its numbers themselves.

    (n - 1)/n where Keras keeps the unbiased variance of n numbers per channel, as it does of maps;
    1 for vectors. For a layer of ours n is that of its last call.
    """
    if not layer.fused:
        return 1.0
    if isinstance(layer, _OwnBatchNormalization):
        return 1 - 1 / layer.numbers
    return 1 - 1 / (images * math.prod(layer.input_shape[1:]) // layer.moving_mean.shape[0])


def batch_norms(model: tf.keras.Model) -> list[tf.keras.layers.BatchNormalization]:
    """The layers that normalise by the batch in training: those that are frozen do not."""
    norms = (layer for layer in all_layers(model) if isinstance(layer, L.BatchNormalization))
    return [layer for layer in norms if layer.trainable]


def plain_convolutions(network: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    """Those that train and mix all maps: a channel of a depthwise one sees a single map, so that
    its kernel is no matrix."""
    convolutions = (x for x in all_layers(network) if type(x) is L.Conv2D)
    return [x for x in convolutions if x.groups == 1 and x.trainable]


def muon_kernels(network: tf.keras.Model, optimizer: Muon) -> list[tf.Variable]:
    """The convolutions that Muon orthogonalises.

    With ``fix_norm`` only those whose length is taken away by what alone gets their output: the
    normalisation by the batch. Layers inside other layers show no order, so they are left out.
    """
    plain = plain_convolutions(network)
    if optimizer.fix_norm:
        uses = defaultdict[Any, list[bool]](list)
        _note_uses(network, uses, training=True)
        linear = tf.keras.activations.linear
        plain = [x for x in plain if x.activation is linear and uses[x] and all(uses[x])]
    return [x.kernel for x in plain]


def _note_uses(model: tf.keras.Model, uses: dict[Any, list[bool]], *, training: bool) -> None:
    """For each layer, whether batch norm that takes the batch's statistics is what gets its output,
    for each that gets it."""
    for node, before in calls(model):
        given = (*node.call_args[1:2], node.call_kwargs.get("training"))[0]
        acts = training and not (isinstance(given, int) and not given)
        norm = acts and isinstance(node.layer, L.BatchNormalization) and node.layer.trainable
        for layer in before:
            uses[layer].append(norm)
        if hasattr(node.layer, "_nodes_by_depth"):
            _note_uses(node.layer, uses, training=acts)
    for tensor in model.outputs:
        uses[source(tensor)].append(False)


def replace_batch_norms(model: tf.keras.Model, technique: Technique, size: int) -> None:
    """Make each batch norm of a network one by ghosts or over the ranks, if ``technique`` has that.

    The layer takes another class and stays the object that it is. All that it was made with and
    its variables remain, wherever it stands. ``clone_model`` would need the config of every layer,
    draws the weights again, and does not see the layers inside other layers.
    """
    for layer in batch_norms(model):
        if technique.normalisation == "ghost_batch_norm":
            layer.__class__ = GhostBatchNormalization
            layer.ghost_batch = technique.ghost_batch
            layer.momentum_per = technique.bn_momentum_per
        elif technique.normalisation == "sync_batch_norm":
            layer.__class__ = SyncBatchNormalization
            layer.size = size
