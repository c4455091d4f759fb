"""The distributed train step that every technique shares.

Tape, local gradients, one grouped all-reduce, a plain Keras optimizer, in one tf.function. Own,
because ``model.fit`` hides what must be measured, and a ``DistributedOptimizer`` reduces only in
``minimize``: with a tape and ``apply_gradients`` it trains every rank alone, without an error.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import horovod.tensorflow as hvd
import tensorflow as tf

from train.layers import StepSeed
from train.optimizers import velocities
from train.technique import Adam, Lamb, Sgd


class StepResult(NamedTuple):
    """Scalars of one step; ``loss`` and ``correct`` are this rank's, the rest equal on all ranks.

    ``gradient_sq`` is the squared L2 norm of the mean gradient; not finite means diverged, and all
    ranks see it in the same step. Seconds are measured on this rank.
    """

    loss: float
    correct: int
    gradient_sq: float
    communication_s: float


class TrainStep:
    """Callable: one optimizer step on this rank's batch."""

    def __init__(
        self,
        model: tf.keras.Model,
        optimizer: Any,
        optimizer_config: Sgd | Adam | Lamb,
        seed: StepSeed,
        *,
        size: int,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.seed = seed
        self.size = size
        self._velocities = velocities(optimizer, optimizer_config)
        self._last_rate: float | None = None

    def resume_at(self, last_rate: float) -> None:
        """The rate of the step before the next one, which momentum correction needs."""
        self._last_rate = last_rate

    def __call__(self, images: Any, labels: Any, rate: float, step: int) -> StepResult:
        """images: uint8 [b, H, W, C]; labels: int64 [b]; rate: lr of this step; step: 0-based."""
        correction = rate / self._last_rate if self._last_rate else 1.0
        self._last_rate = rate
        loss, correct, gradient_sq, communication_s = self._run(
            images, labels, tf.constant(rate, tf.float32), tf.constant(correction, tf.float32),
            tf.constant(step, tf.int32),
        )  # fmt: skip
        # reading the numbers waits for the device: the clock around this call is honest
        return StepResult(float(loss), int(correct), float(gradient_sq), float(communication_s))

    @tf.function(reduce_retracing=True)
    def _run(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        rate: tf.Tensor,
        correction: tf.Tensor,
        step: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        self.seed.set_step(step)
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        gradients, communication_s = self._mean_over_ranks(gradients)
        for velocity in self._velocities:
            velocity.assign(velocity * correction)
        self.optimizer.learning_rate.assign(rate)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        hits = tf.equal(tf.argmax(logits, axis=-1), labels)
        gradient_sq = tf.add_n([tf.reduce_sum(tf.square(g)) for g in gradients])
        return loss, tf.math.count_nonzero(hits), gradient_sq, communication_s

    def _mean_over_ranks(self, gradients: list[tf.Tensor]) -> tuple[list[tf.Tensor], tf.Tensor]:
        """One grouped all-reduce between two time stamps that bracket it exactly.

        A world of one has nothing to reduce: it is skipped, because paying Horovod's cycle time in
        the baseline would flatter every efficiency.
        """
        if self.size == 1:
            return gradients, tf.constant(0.0, tf.float64)
        begin = _clock_after(gradients)
        with tf.control_dependencies([begin]):
            held = [tf.identity(gradient) for gradient in gradients]
        reduced = hvd.grouped_allreduce(held, op=hvd.Average)
        return reduced, _clock_after(reduced) - begin


def _clock_after(tensors: list[tf.Tensor]) -> tf.Tensor:
    """Seconds of the monotonic clock when all the tensors have values (float64 scalar).

    One element of each goes to the host: a GPU's kernels are only queued when the graph gets here,
    and waiting for values is what makes the time one of results. A call back into Python (tens of
    microseconds), because tf.timestamp refuses to run when ops are deterministic.
    """
    probe = tf.concat([tf.reshape(tensor, [-1])[:1] for tensor in tensors], axis=0)
    return tf.numpy_function(lambda _: time.perf_counter(), [probe], tf.float64, stateful=True)
