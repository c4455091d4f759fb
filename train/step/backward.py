"""Loss, hits and gradient of one batch on one rank.

Multiplicative noise makes a large batch's gradient scatter as that of a small batch. Hoffer et al.
2017 (1705.08741), section 4: each image's gradient is multiplied by its own z ~ N(1, s^2). With
g_n of mean G and covariance C, the mean over M images of g_n z_n has mean G and covariance
(C + s^2 (C + G G^T)) / M, so s^2 = M / M0 - 1 gives C / M0, the noise of batch M0, up to
G G^T (1/M0 - 1/M).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from train.config.technique import Technique
from train.errors import ConfigError
from train.models.layers import StepSeed
from train.step.loss_scale import LossScale, NoLossScale


class Backward(NamedTuple):
    """Of one batch, or the mean of several; in the graph."""

    gradients: list[tf.Tensor]  # float32, dense; of the regularisation losses, too
    square: tf.Tensor  # squared norm over all of them, float32
    # mean cross-entropy, unweighted, float32: without regularisation losses, as in validation
    loss: tf.Tensor
    hits: tf.Tensor  # images whose class was predicted, int64


def backward(
    model: tf.keras.Model,
    technique: Technique,
    seed: StepSeed,
    loss_scale: LossScale | NoLossScale,
    images: tf.Tensor,
    labels: tf.Tensor,
    number: tf.Tensor,
    sigma: tf.Tensor | None,
) -> Backward:
    """Forward and backward pass over uint8 images [b, H, W, C] and int64 labels [b].

    The model's own losses (regularisers) are added to what is differentiated. They are the same for
    every batch, or means over its images, so the mean over batches and ranks is that of one batch.

    number: of the draws of dropout and noise, int64. sigma: deviation of the images' weights; None
    if all weigh the same.
    """
    seed.set_step(number)
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        if share := technique.label_smoothing:  # of each label, spread over all classes
            classes = logits.shape[-1]
            smooth = tf.one_hot(labels, classes) * (1 - share) + share / classes
            losses = tf.nn.softmax_cross_entropy_with_logits(smooth, logits)
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        # the metric is that of the images, whatever their gradients weigh
        loss = objective = tf.reduce_mean(losses)
        if sigma is not None:
            weights = sample_weights(tf.shape(labels)[0], sigma, seed.value)
            objective = tf.reduce_mean(losses * weights)
        if penalties := model.losses:
            objective += tf.add_n([tf.cast(penalty, tf.float32) for penalty in penalties])
        (objective,) = loss_scale.scaled([objective])
    variables = model.trainable_variables
    gradients = loss_scale.unscaled(_dense(tape.gradient(objective, variables), variables))
    hits = tf.math.count_nonzero(tf.equal(tf.argmax(logits, axis=-1), labels))
    return Backward(gradients, squared_norm(gradients), loss, hits)


def _dense(gradients: Sequence[Any], variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """An embedding's gradient has the rows that were used; all others are 0. Reductions, norms and
    optimizers need the whole."""
    unused = [v.name for v, g in zip(variables, gradients, strict=True) if g is None]
    if unused:
        raise ConfigError(
            f"the loss does not depend on {len(unused)} of the network's {len(variables)} "
            f"variables ({', '.join(unused[:4])}), so they have no gradient: leave their layers "
            "out, or set trainable = False"
        )
    return [
        tf.ensure_shape(tf.convert_to_tensor(g), v.shape) if isinstance(g, tf.IndexedSlices) else g
        for g, v in zip(gradients, variables, strict=True)
    ]


def squared_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    # l2_loss reads each gradient once, and stores no squares
    return tf.add_n([2 * tf.nn.l2_loss(g) for g in gradients])


# folded into the step's seed: any number that no layer uses, which count from 0
_STREAM = 1_705_087_410


def sigma_for(global_batch: int, noise_batch: int) -> float:
    """s = sqrt(M / M0 - 1), which is 7.9 for M = 8192 and M0 = 128; 0 if M <= M0: the batch already
    scatters at least as much. M: of one step over all ranks and accumulated batches."""
    return math.sqrt(max(0.0, global_batch / noise_batch - 1))


def sample_weights(batch: int | tf.Tensor, sigma: float | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """One weight for each image's loss: float32 [batch], independent N(1, sigma^2).

    seed: int [2], the value of StepSeed: other weights for every rank and step, the same after a
    resume. The weighted losses are divided by the number of images: the weights' sum would take out
    the noise along the mean gradient.
    """
    own = tf.random.experimental.stateless_fold_in(seed, _STREAM)
    return tf.random.stateless_normal([batch], own, mean=1.0, stddev=sigma)
