"""The distributed train step that every technique shares.

Tape, local gradients, one reduction over the ranks, a plain optimizer. Own, because ``model.fit``
hides what must be measured, and a ``DistributedOptimizer`` reduces only in ``minimize``: with a
tape and ``apply_gradients`` it trains every rank alone, without an error.

Here the step is three graphs with the clock between them: the form that its parts are measured in.
:class:`train.step.one_graph.OneGraphStep` has the one that trains.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from train.config.technique import Technique
from train.data.batches import Batch
from train.models.layers import StepSeed, draw_number, graph
from train.optimizers.layerwise import trust_log, velocities
from train.step.adascale import AdaScale
from train.step.backward import Backward, backward, sigma_for, squared_norm
from train.step.loss_scale import LossScale, NoLossScale
from train.step.reduction import build_reducer
from train.step.result import StepParts, StepResult

#: What a rank does that waits for the others.
ADDING_UP = ", adding up over the ranks"


@dataclass(eq=False, repr=False)
class TrainStep:
    """Callable: one optimizer step on this rank's batches."""

    model: tf.keras.Model
    optimizer: Any
    technique: Technique
    seed: StepSeed
    size: int
    adascale: AdaScale | None = None
    replicas = 1  # models that one process trains, each on batches of its own

    def __post_init__(self) -> None:
        #: called with the step's number and the part of it that begins: all can take long on a CPU
        self.beat: Callable[[int, str], None] = lambda *_: None
        technique = self.technique
        half = technique.precision == "mixed_float16"
        self.loss_scale: LossScale | NoLossScale = LossScale() if half else NoLossScale()
        # what float16 would lose on its way between the ranks it loses in the backward pass too
        self._wire_scale = self.loss_scale if technique.compression == "fp16" else NoLossScale()
        self._reduce_over_ranks = build_reducer(technique, self.size)
        self._velocities = velocities(self.optimizer, technique.optimizer)
        self.trust = trust_log(self.optimizer)
        #: of the last step that was applied, which momentum correction starts from
        self.last_rate: float | None = None
        self._local = partial(backward, self.model, technique, self.seed, self.loss_scale)
        self._local_graph, self._add_graph = graph(self._local), graph(self._add)
        self._mean_graph, self._reduce_graph = graph(self._mean), graph(self._reduce)
        self._update_graph = graph(self._update)

    @property
    def state(self) -> list[tf.Variable]:
        """All variables that a checkpoint holds."""
        return [*self.model.variables, *self.optimizer.variables(), *self.loss_scale.variables]

    def pull(self) -> None:
        """Bring the model that is evaluated up to the trained one, if that is another."""

    def push(self) -> None:
        """Give the model that is trained what the evaluated one has, if that is another."""

    @property
    def wire_bytes(self) -> int:
        """Of one gradient, as it travels."""
        count = sum(math.prod(variable.shape) for variable in self.model.trainable_variables)
        return count * (4 if self.technique.compression == "none" else 2)

    def __call__(self, batches: Sequence[Batch], rate: float, step: int) -> StepResult:
        """batches: whose gradients are averaged, of equal size; step: 0-based, over the run."""
        gain = self.adascale.gain if self.adascale else 1.0
        rate *= gain
        own = self._gradients(batches, step)
        accumulated = len(batches) > self.replicas
        if self.size > 1:  # who waits for the others must not look as if it computed
            self.beat(step, ADDING_UP)
        waiting_s, negotiation_s = self._meet()
        begin = time.perf_counter()
        gradients, *squares = self._reduce_graph(own.gradients, own.square, accumulated)
        squares = [float(square) for square in squares]  # waits for the device
        reduced = time.perf_counter()
        applied = math.isfinite(squares[-1])
        if applied:
            correction = self._corrections([rate])[0]
            done = self._update_graph(
                gradients, tf.constant(rate, tf.float32), tf.constant(correction, tf.float32)
            )
            done.numpy()  # waits for the device
        self.loss_scale.update(tf.constant(applied))
        return self._result(
            float(np.mean([float(loss) for loss in self._local_results(own.loss)])),
            sum(int(hits) for hits in self._local_results(own.hits)),
            sum(len(labels) for _, labels in batches),
            squares, rate, gain, self.trust and self.trust.factors,
            StepParts(
                waiting_s, negotiation_s,
                (waiting_s or 0.0) + reduced - begin if self.size > 1 else 0.0,
                time.perf_counter() - reduced,
            ),
        )  # fmt: skip

    def _result(
        self, loss: float, correct: int, images: int, squares: Sequence[float],
        rate: float, gain: float, trust: Any, parts: StepParts | None = None,
    ) -> StepResult:  # fmt: skip
        small_sq, own_sq, big_sq = squares
        applied = math.isfinite(big_sq)
        if applied:
            self.last_rate = rate
        if self.adascale:
            self.adascale = self.adascale.after(small_sq, big_sq)
        # half precision overflows: under a loss scale, or on the wire, if the ranks' own gradients
        # are finite
        wire = self.technique.compression == "fp16" and math.isfinite(small_sq)
        overflows = wire or self.technique.precision == "mixed_float16"
        return StepResult(
            loss=loss,
            correct=correct,
            images=images,
            gradient_sq=big_sq,
            small_sq=small_sq,
            own_sq=own_sq,
            skipped=not applied and overflows,
            rate=rate,
            gain=gain,
            trust=np.asarray(trust) if applied and self.trust else None,
            parts=parts,
        )

    def _meet(self) -> tuple[float | None, float | None]:
        """Seconds of waiting for the slowest rank, and of one round of ranks that are all here:
        negotiation and latency of an all-reduce of four bytes."""
        if self.size == 1:
            return None, None
        arrived = time.perf_counter()
        _round()
        met = time.perf_counter()
        _round()
        negotiation_s = time.perf_counter() - met
        return max(met - arrived - negotiation_s, 0.0), negotiation_s

    def _gradients(self, batches: Sequence[Batch], step: int) -> Backward:
        """Of the mean over the batches; computed when this returns, not only queued on a GPU."""
        images = sum(len(labels) for _, labels in batches)
        sums = self._summed(batches, step, self._sigma(images), of=len(batches))
        if len(batches) > 1:
            sums = self._mean_graph(sums, tf.constant(len(batches), tf.float32))
        float(sums.square)  # made of all gradients: they are there when it is
        return sums

    def _summed(
        self, batches: Sequence[Batch], step: int, sigma: tf.Tensor | None, *, of: int
    ) -> Backward:
        """Sums over the first batches of a step that has ``of`` in all."""
        sums: Any = None
        for micro, (images, labels) in enumerate(batches):
            if micro:
                self.beat(step, f", batch {micro + 1} of {of}")
            # dropout and noise of each batch are drawn apart
            number = tf.constant(draw_number(step, micro), tf.int64)
            own = self._local_graph(images, labels, number, sigma)
            sums = own if sums is None else self._add_graph(sums, own)
        return sums

    def _sigma(self, images: int) -> tf.Tensor | None:
        """Of the images' weights in a step of so many images of this process."""
        if self.technique.noise_batch is None:
            return None
        sigma = sigma_for(self.size * images // self.replicas, self.technique.noise_batch)
        return tf.constant(sigma) if sigma > 0 else None

    def _corrections(self, rates: Sequence[float]) -> list[float]:
        """Of the velocities, from the last rate that was applied to each."""
        before = [self.last_rate, *rates[:-1]]
        return [rate / last if last else 1.0 for rate, last in zip(rates, before, strict=True)]

    def _add(self, sums: Backward, own: Backward) -> Backward:
        return tf.nest.map_structure(tf.add, sums, own)

    def _mean(self, sums: Backward, count: tf.Tensor) -> Backward:
        gradients, square, loss, hits = sums
        return Backward([g / count for g in gradients], square / count, loss / count, hits)

    def _reduce(
        self, gradients: list[tf.Tensor], square: tf.Tensor, accumulated: bool
    ) -> tuple[Any, ...]:
        """Mean gradient; mean squared norms of the batches' and of the ranks' gradients; that of
        the mean gradient."""
        scaled, small = self._reduce_over_ranks(self._wire_scale.scaled(gradients), square)
        mean, own = self._wire_scale.unscaled(scaled), small
        if accumulated and self.size > 1:  # ranks may repeat each other, whose batches differ
            own = hvd.allreduce(
                squared_norm(gradients), op=hvd.Average, name="own_square", ignore_name_scope=True
            )
        return mean, small, own, squared_norm(mean)

    def _update(
        self, gradients: list[tf.Tensor], rate: tf.Tensor, correction: tf.Tensor
    ) -> tf.Tensor:
        for velocity in self._velocities:
            velocity.assign(velocity * correction)
        self.optimizer.learning_rate.assign(rate)
        return self._apply(gradients)

    def _apply(self, gradients: list[tf.Tensor]) -> tf.Tensor:
        if self.technique.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.technique.clip_norm)
        variables = self.model.trainable_variables
        # they are the mean already, and an optimizer would sum them over replicas again
        self.optimizer.apply_gradients(
            zip(gradients, variables, strict=True), experimental_aggregate_gradients=False
        )
        # one number of each, there only when all of the variables are: what to wait for
        return tf.concat([tf.reshape(variable, [-1])[:1] for variable in variables], axis=0)

    def _local_results(self, value: Any) -> Any:
        return (value,)


def _round() -> None:
    """The smallest all-reduce, on the host: a GPU's own queue is another matter."""
    with tf.device("CPU"):
        float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="meeting"))
