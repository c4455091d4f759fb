"""The distributed train step that every technique shares.

Tape, local gradients, one reduction over the ranks, a plain optimizer: three graphs with the clock
between them. Own, because ``model.fit`` hides what must be measured, and a ``DistributedOptimizer``
reduces only in ``minimize``: with a tape and ``apply_gradients`` it trains every rank alone,
without an error. What differs between techniques is plugged in: how images are weighted, how
gradients are reduced, how the rate follows their noise, which optimizer takes the step.

Multiplicative noise: a large batch's gradient made to scatter as that of a small batch.

Hoffer et al. 2017 (1705.08741), section 4: each image's gradient is multiplied by its own
z ~ N(1, s^2). With g_n of mean G and covariance C, the mean over M images of g_n z_n has mean G and
covariance (C + s^2 (C + G G^T)) / M, so s^2 = M / M0 - 1 gives C / M0, the noise of batch M0, up to
G G^T (1/M0 - 1/M).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import horovod.tensorflow as hvd
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.config.technique import Technique
from train.data.batches import Batch
from train.models.layers import StepSeed, draw_number, graph
from train.optimizers import trust_ratios, velocities
from train.step.adascale import AdaScale
from train.step.loss_scale import NoLossScale, build_loss_scale
from train.step.reduction import build_reducer

Floats = npt.NDArray[np.float32]
# folded into the step's seed: any number that no layer uses, which count from 0
_STREAM = 1_705_087_410


class StepResult(NamedTuple):
    """One optimizer step; ``loss`` and ``correct`` are this rank's, the rest equal on all ranks.

    Squares are of L2 norms over all variables. ``gradient_sq`` not finite means an overflow, which
    ``skipped`` the update, or that the run has diverged; all ranks see it in the same step, and
    none of them touches its weights. Seconds are measured on this rank.
    """

    # mean cross-entropy of this rank's images, unweighted, against the labels as they are smoothed
    loss: float
    correct: int
    images: int  # of this rank
    gradient_sq: float  # of the reduced gradient, before clipping
    small_sq: float  # of the gradients of single batches, before the reduction: their mean
    own_sq: float  # of the ranks' own gradients, each the mean over its batches: their mean
    skipped: bool
    rate: float  # as applied, or as it would have been
    gain: float  # of AdaScale, else 1: steps that the schedule's clock advances
    # factors of the adapted variables, and whether clipped; None where nothing was applied
    trust: tuple[Floats, Floats] | None
    communication_s: float  # waiting for slower ranks included
    update_s: float

    @property
    def applied(self) -> bool:
        """Whether the weights were updated."""
        return math.isfinite(self.gradient_sq)


class TrainStep:
    """Callable: one optimizer step on this rank's batches."""

    replicas = 1  # models that one process trains, each on batches of its own

    def __init__(
        self,
        model: tf.keras.Model,
        optimizer: Any,
        technique: Technique,
        seed: StepSeed,
        *,
        size: int,
        adascale: AdaScale | None = None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.technique = technique
        self.seed = seed
        self.size = size
        self.adascale = adascale
        #: told before each batch but a step's first: all of them together can take long on a CPU
        self.beat: Callable[[str], None] = lambda _: None
        self.loss_scale = build_loss_scale(technique.precision)
        # what float16 would lose on its way between the ranks it loses in the backward pass too
        self._wire_scale = self.loss_scale if technique.compression == "fp16" else NoLossScale()
        self._reduce_over_ranks = build_reducer(technique, size)
        self._velocities = velocities(optimizer, technique.optimizer)
        self._last_rate: float | None = None

    @property
    def state(self) -> list[tf.Variable]:
        """What a checkpoint must hold besides the model and the optimizer."""
        return list(self.loss_scale.variables)

    @property
    def wire_bytes(self) -> int:
        """Of one gradient, as it travels."""
        count = sum(math.prod(variable.shape) for variable in self.model.trainable_variables)
        return count * (4 if self.technique.compression == "none" else 2)

    @property
    def last_rate(self) -> float | None:
        """Of the last step that was applied, which momentum correction starts from."""
        return self._last_rate

    def resume_at(self, last_rate: float | None) -> None:
        """``last_rate`` of the run that goes on."""
        self._last_rate = last_rate

    def __call__(self, batches: Sequence[Batch], rate: float, step: int) -> StepResult:
        """batches: whose gradients are averaged, of equal size; rate: lr of this step; step:
        0-based number over the run."""
        own, square, loss, correct = self._gradients(batches, step)
        begin = time.perf_counter()
        gradients, small, big = self._reduce(own, square)
        small_sq, big_sq = float(small), float(big)  # waits for the device
        accumulated = len(batches) > self.replicas and self.size > 1
        own_sq = float(self._own_square(own)) if accumulated else small_sq
        reduced = time.perf_counter()
        gain = self.adascale.gain(small_sq, big_sq) if self.adascale else 1.0
        rate *= gain
        applied = math.isfinite(big_sq)
        if applied:
            self._apply(gradients, rate)
        self.loss_scale.update(tf.constant(applied))
        return StepResult(
            loss=loss,
            correct=correct,
            images=sum(len(labels) for _, labels in batches),
            gradient_sq=big_sq,
            small_sq=small_sq,
            own_sq=own_sq,
            skipped=not applied and self._may_overflow(small_sq),
            rate=rate,
            gain=gain,
            trust=self._trust() if applied else None,
            communication_s=reduced - begin if self.size > 1 else 0.0,
            update_s=time.perf_counter() - reduced,
        )

    def _gradients(
        self, batches: Sequence[Batch], step: int
    ) -> tuple[list[tf.Tensor], tf.Tensor, float, int]:
        """Mean gradient over the batches, mean of their squared norms, mean loss, hits; there when
        this returns: a GPU's kernels are only queued when a graph gets there."""
        sigma = self._sigma(batches)
        sums: tuple[Any, ...] | None = None
        for micro, (images, labels) in enumerate(batches):
            if micro:
                self.beat(f", batch {micro + 1} of {len(batches)}")
            # dropout and noise of each batch are drawn apart
            number = tf.constant(draw_number(step, micro), tf.int64)
            own = self._local(images, labels, number, tf.constant(sigma), noisy=sigma > 0)
            sums = own if sums is None else self._add(sums, own)
        if len(batches) > 1:  # who waits for the others must not look as if in its last batch
            self.beat(", adding up over the ranks")
        assert sums is not None
        if len(batches) > 1:
            sums = self._mean(sums, tf.constant(len(batches), tf.float32))
        gradients, square, loss, correct = sums
        float(square)  # made of all gradients: they are there when it is
        return gradients, square, float(loss), int(correct)

    def _sigma(self, batches: Sequence[Batch]) -> float:
        """Deviation of the images' weights, from the images of the whole step."""
        if self.technique.noise_batch is None:
            return 0.0
        own = sum(len(labels) for _, labels in batches) // self.replicas
        return sigma_for(self.size * own, self.technique.noise_batch)

    @graph
    def _local(
        self, images: tf.Tensor, labels: tf.Tensor, number: tf.Tensor, sigma: tf.Tensor,
        noisy: bool,
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
        self.seed.set_step(number)
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            losses = self._losses(labels, logits)
            # the metric is that of the images, whatever their gradients weigh
            loss = objective = tf.reduce_mean(losses)
            if noisy:
                weights = sample_weights(tf.shape(labels)[0], sigma, self.seed.value)
                objective = tf.reduce_mean(losses * weights)
            (objective,) = self.loss_scale.scaled([objective])
        gradients = tape.gradient(objective, self.model.trainable_variables)
        gradients = self.loss_scale.unscaled(gradients)
        hits = tf.equal(tf.argmax(logits, axis=-1), labels)
        return gradients, squared_norm(gradients), loss, tf.math.count_nonzero(hits)

    def _losses(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Cross-entropy per image, against labels of which a share is spread over all classes."""
        share = self.technique.label_smoothing
        if share == 0:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        classes = logits.shape[-1]
        wanted = tf.one_hot(labels, classes) * (1 - share) + share / classes
        return tf.nn.softmax_cross_entropy_with_logits(wanted, logits)

    @graph
    def _add(self, sums: Any, own: Any) -> Any:
        return tf.nest.map_structure(tf.add, sums, own)

    @graph
    def _mean(self, sums: Any, count: tf.Tensor) -> Any:
        gradients, square, loss, correct = sums
        return [g / count for g in gradients], square / count, loss / count, correct

    @graph
    def _reduce(
        self, gradients: list[tf.Tensor], square: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        reduced = self._reduce_over_ranks(self._wire_scale.scaled(gradients), square)
        mean = self._wire_scale.unscaled(reduced.gradients)
        return mean, reduced.small, squared_norm(mean)

    @graph
    def _own_square(self, own: list[tf.Tensor]) -> tf.Tensor:
        """Mean over the ranks of the squared norm of each one's gradient: what tells ranks that
        repeat each other where their accumulated batches differ."""
        return hvd.allreduce(squared_norm(own), op=hvd.Average)

    def _apply(self, gradients: list[tf.Tensor], rate: float) -> None:
        correction = rate / self._last_rate if self._last_rate else 1.0
        self._last_rate = rate
        done = self._update(
            gradients, tf.constant(rate, tf.float32), tf.constant(correction, tf.float32)
        )
        done.numpy()  # waits for the device

    @graph
    def _update(
        self, gradients: list[tf.Tensor], rate: tf.Tensor, correction: tf.Tensor
    ) -> tf.Tensor:
        if self.technique.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.technique.clip_norm)
        for velocity in self._velocities:
            velocity.assign(velocity * correction)
        self.optimizer.learning_rate.assign(rate)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return first_elements(variables)

    def _may_overflow(self, small_sq: float) -> bool:
        """Half precision overflows where float32 would not: in the forward and backward pass under
        a loss scale, or on the wire, where the ranks' own gradients are finite."""
        if self.technique.precision == "mixed_float16":
            return True
        return self.technique.compression == "fp16" and math.isfinite(small_sq)

    def _trust(self) -> tuple[Floats, Floats] | None:
        ratios = trust_ratios(self.optimizer)
        return None if ratios is None else (ratios[0].numpy(), ratios[1].numpy())


def squared_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Squared L2 norm over all of them, float32 scalar."""
    return tf.add_n([tf.reduce_sum(tf.square(g)) for g in gradients])


def first_elements(tensors: Sequence[Any]) -> tf.Tensor:
    """One of each, there only when all of the tensors are: what to wait for."""
    return tf.concat([tf.reshape(tensor, [-1])[:1] for tensor in tensors], axis=0)


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
