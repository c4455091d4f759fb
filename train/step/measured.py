"""The step in three graphs with the clock between them: how long its parts take."""

from __future__ import annotations

import math
import time

import numpy as np
import tensorflow as tf

from train.data.batches import Batches
from train.distributed.watchdog import WAITING
from train.models.layers import graph
from train.step.result import StepParts, StepResult
from train.step.step import TrainStep


class MeasuredStep:
    """Callable: one step of ``step``, to the same bits."""

    def __init__(self, step: TrainStep) -> None:
        self.step = step
        self._average, self._reduce = graph(step.average), graph(step.reduce)
        self._update = graph(step.update)

    def __call__(self, batches: Batches, rate: float, number: int) -> StepResult:
        """batches: of one step. Every part is computed when the next one begins, not only queued on
        a GPU."""
        step, back_end = self.step, self.step.back_end
        gain = step.adascale.gain if step.adascale else 1.0
        rate *= gain
        count = batches.labels.shape[1] // back_end.replicas
        own = step.summed(batches, number, count, step.sigma(batches))
        if count > 1:
            own = self._average(own, tf.constant(count, tf.float32))
        for square in back_end.local(own.square):
            float(square)  # made of all gradients: they are there when it is
        if back_end.size > 1:  # who waits for the others must not look as if it computed
            step.beat(number, WAITING)
        waiting_s, negotiation_s = self._meet()
        begin = time.perf_counter()
        gradients, *means = self._reduce(own, accumulates=count > 1)
        squares = [float(square) for square in means]
        reduced = time.perf_counter()
        applied = math.isfinite(squares[-1])
        if applied or not step.may_overflow:
            (correction,) = step.corrections([rate])
            done = self._update(
                gradients, tf.constant(rate, tf.float32), tf.constant(correction, tf.float32)
            )
            done.numpy()
        step.loss_scale.update(tf.constant(applied))
        if step.trust and applied:
            step.trust_factors.append(step.trust.factors.read_value()[tf.newaxis])
        return step.result(
            float(np.mean([float(loss) for loss in back_end.local(own.loss)])),
            sum(int(hits.numpy()) for hits in back_end.local(own.hits)),
            batches.labels.size, squares, rate, gain,
            StepParts(
                waiting_s, negotiation_s,
                (waiting_s or 0.0) + reduced - begin if back_end.size > 1 else 0.0,
                time.perf_counter() - reduced,
            ),
        )  # fmt: skip

    def _meet(self) -> tuple[float | None, float | None]:
        """Seconds of waiting for the slowest rank, and of one round of ranks that are all here:
        negotiation and latency of an all-reduce of four bytes."""
        first_s, negotiation_s = self.step.back_end.round_s(), self.step.back_end.round_s()
        if first_s is None or negotiation_s is None:
            return None, None
        return max(first_s - negotiation_s, 0.0), negotiation_s
