"""One optimizer step over all ranks: forward, backward, reduce, update, report.

Own, because ``model.fit`` hides what must be measured, and a ``DistributedOptimizer`` reduces only
in ``minimize``: with a tape and ``apply_gradients`` it trains every rank alone, without an error.

A call takes several steps in one graph. No host is between them, and gradients travel while others
are computed. The parts are not functions of their own there: a function returns all its results at
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.config.technique import Technique
from train.data.batches import Batches
from train.distributed.watchdog import WAITING
from train.models.layers import StepSeed, draw_number, graph
from train.step.adascale import AdaScale
from train.step.back_end import BackEnd
from train.step.backward import Backward, backward, sigma_for, squared_norm
from train.step.loss_scale import LossScale, NoLossScale
from train.step.optimizers.layerwise import trust_log, velocities
from train.step.result import StepResult

_COMPUTING, _REDUCING = 0, 1  # parts of a step, as ``progress`` has them


@dataclass(eq=False, repr=False)
class TrainStep:
    """Callable: optimizer steps on this process' batches."""

    model: tf.keras.Model
    optimizer: Any
    technique: Technique
    seed: StepSeed
    back_end: BackEnd
    loss_scale: LossScale | NoLossScale
    adascale: AdaScale | None = None

    def __post_init__(self) -> None:
        #: Called with a step's number and its next accumulated batch: each can take long on a CPU.
        self.beat: Callable[[int, str], None] = lambda *_: None
        self.trust = trust_log(self.optimizer)
        #: Of the steps that were applied, [steps, 2, adapted variables] each; who reads it clears
        #: it, once in an epoch, since a GPU has to wait for that.
        self.trust_factors: list[tf.Tensor] = []
        #: of the last step that was applied, which momentum correction starts from
        self.last_rate: float | None = None
        with tf.device("CPU"):
            # draw number and part of the step: written from within the graph and read by the
            # watchdog's thread, so that no step calls Python
            self.progress = tf.Variable([0, _COMPUTING], False, dtype=tf.int64, name="progress")
        technique = self.technique
        self.may_overflow = technique.precision == "mixed_float16" or technique.wire.overflows
        self._velocities = velocities(self.optimizer, technique.optimizer)
        self._gradients_graph, self._add_graph = graph(self._gradients), graph(self._add)
        self._graphs: dict[tuple[Any, ...], Any] = {}

    def __call__(self, batches: Batches, rates: Sequence[float], first: int) -> list[StepResult]:
        """One step for each rate. In half precision fewer: one that was not applied is the last.

        batches: of all steps; of one only if gradients are accumulated, whose batches except the
        last are calls of their own. first: 0-based number of the first step over the run.
        """
        accumulated = batches.labels.shape[1] // self.back_end.replicas
        assert accumulated == 1 or len(rates) == 1, "accumulated steps are taken one by one"
        gain = self.adascale.gain if self.adascale else 1.0
        assert gain == 1 or len(rates) == 1, "AdaScale's gain follows from the step before"
        rates = [rate * gain for rate in rates]
        images, sigma = batches.labels[0].size, self.sigma(batches)
        earlier = self.summed(batches, first, accumulated - 1, sigma)
        if earlier is not None:
            self.beat(first, f", batch {accumulated} of {accumulated}")
        drawn = [draw_number(first + n, accumulated - 1) for n in range(len(rates))]
        with tf.device("CPU"):
            numbers = tf.constant(drawn, tf.int64)
        table, ratios, taken = self._graph_for(batches, earlier, sigma)(
            *self.placed(batches, accumulated - 1),
            numbers, tf.constant(rates, tf.float32),
            tf.constant(self.corrections(rates), tf.float32), sigma, earlier,
            tf.constant(accumulated, tf.float32),
        )  # fmt: skip
        rows = table.numpy()[: int(taken)].tolist()
        results = [
            self.result(loss, int(hits), images, squares, rate, gain)
            for (loss, hits, *squares), rate in zip(rows, rates, strict=False)
        ]
        if self.trust:
            self.trust_factors.append(ratios[: sum(result.applied for result in results)])
        return results

    def _steps(
        self, images: Any, labels: Any, numbers: tf.Tensor, rates: tf.Tensor,
        corrections: tf.Tensor, sigma: tf.Tensor | None, earlier: Any, accumulated: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
        """Rows of loss, hits, and squares of batches, ranks and all; trust factors; steps taken."""
        steps = tf.shape(rates)[0]

        def step(n: tf.Tensor, _: tf.Tensor, table: Any, ratios: Any) -> tuple[Any, ...]:
            with tf.device("CPU"):  # where it is read, so that a GPU need not answer
                number = numbers[n]
            with tf.control_dependencies([self._report(number, _COMPUTING)]):
                own = self._gradients(images, labels, n, number, sigma)
            if earlier is not None:
                own = self.average(self._add(earlier, own), accumulated)
            if self.back_end.size > 1:  # who waits must not look as if it were computing
                self._report(number, _REDUCING, *self.back_end.local(own.square))
            mean, *squares = self.reduce(own, accumulates=earlier is not None)
            finite = tf.math.is_finite(squares[-1])
            if self.may_overflow:
                # the reduced gradient decides, so that all ranks take the same number of steps
                def updated() -> tf.Tensor:
                    with tf.control_dependencies([self.update(mean, rates[n], corrections[n])]):
                        return tf.constant(True)

                finite = done = tf.cond(finite, updated, lambda: tf.constant(False))
                self.loss_scale.update(finite)
            else:
                # a host that waits for a number of a GPU at each step leaves the GPU idle; a NaN is
                # found at the end of the call, and ends the run
                done, finite = self.update(mean, rates[n], corrections[n]), tf.constant(True)
            hits = tf.add_n([tf.cast(x, tf.float32) for x in self.back_end.local(own.hits)])
            loss = tf.reduce_mean(tf.stack(self.back_end.local(own.loss)))
            table = table.write(n, tf.stack([loss, hits, *squares]))
            if self.trust:
                with tf.control_dependencies([done]):
                    ratios = ratios.write(n, self.trust.factors.read_value())
            return n + 1, finite, table, ratios

        width = len(self.trust.names) if self.trust else 0
        empty = [tf.TensorArray(tf.float32, steps, element_shape=s) for s in ([5], [2, width])]

        def goes_on(n: tf.Tensor, finite: tf.Tensor, *_: Any) -> tf.Tensor:
            return (n < steps) & finite if self.may_overflow else n < steps

        taken, _, table, ratios = tf.while_loop(
            goes_on,
            step,
            (tf.constant(0), tf.constant(True), *empty),
            parallel_iterations=1,  # the next step needs this one's weights, and its names
        )
        return table.stack(), ratios.stack(), taken

    def _gradients(
        self, images: Any, labels: Any, n: tf.Tensor, number: tf.Tensor, sigma: tf.Tensor | None
    ) -> Backward:
        """Forward and backward pass over batch ``n`` of each replica."""

        def on_one(images: tf.Tensor, labels: tf.Tensor, *more: Any) -> Backward:
            return backward(
                self.model, self.technique, self.seed, self.loss_scale, images[n], labels[n], *more
            )

        return self.back_end.run(on_one, images, labels, number, sigma)

    def reduce(self, own: Backward, *, accumulates: bool) -> tuple[Any, ...]:
        """Mean gradient; mean squared norms of the batches' and of the ranks' gradients; that of
        the mean gradient."""
        squares = [own.square]
        if accumulates and self.back_end.size > 1:  # ranks may repeat each other, not their batches
            squares.append(squared_norm(own.gradients))
        mean, means = self.back_end.reduce(own.gradients, squares)
        return mean, means[0], means[-2], means[-1]

    def update(self, gradients: list[Any], rate: tf.Tensor, correction: tf.Tensor) -> tf.Tensor:
        """One number of each variable, there only when all of them are: what to wait for."""
        self.optimizer.learning_rate.assign(rate)
        for velocity in self._velocities:
            self.back_end.update(velocity, lambda v, factor: v.assign(v * factor), correction)
        done = self.back_end.run(self._apply, gradients)
        return tf.concat(self.back_end.local(done), axis=0)

    def _apply(self, gradients: list[tf.Tensor]) -> tf.Tensor:
        if self.technique.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.technique.clip_norm)
        variables = self.model.trainable_variables
        # they are the mean already, and an optimizer would sum them over replicas again
        self.optimizer.apply_gradients(
            zip(gradients, variables, strict=True), experimental_aggregate_gradients=False
        )
        return tf.concat([tf.reshape(variable, [-1])[:1] for variable in variables], axis=0)

    def _report(self, number: tf.Tensor, part: int, *after: tf.Tensor) -> tf.Operation:
        """The part that begins when ``after`` are computed; on a GPU, when they are queued."""
        with tf.device("CPU"), tf.control_dependencies(after):
            return self.progress.assign(tf.stack([number, tf.constant(part, tf.int64)])).op

    def result(
        self, loss: float, correct: int, images: int, squares: Sequence[float], rate: float,
        gain: float, parts: Any = None,
    ) -> StepResult:  # fmt: skip
        small_sq, own_sq, big_sq = squares
        applied = math.isfinite(big_sq)
        if applied:
            self.last_rate = rate
        if self.adascale:
            self.adascale = self.adascale.after(small_sq, big_sq)
        # half precision overflows: under a loss scale, or on the wire, if the ranks' own gradients
        # are finite
        wire = self.technique.wire.overflows and math.isfinite(small_sq)
        skipped = not applied and (wire or self.technique.precision == "mixed_float16")
        return StepResult(
            loss, correct, images, small_sq, own_sq, big_sq, skipped, rate, gain, parts
        )

    def summed(self, batches: Batches, number: int, count: int, sigma: tf.Tensor | None) -> Any:
        """Of the first ``count`` accumulated batches of one step; None of none."""
        sums: Any = None
        for micro in range(count):
            if micro:
                self.beat(number, f", batch {micro + 1} of {len(batches.labels[0])}")
            # dropout and noise of each batch are drawn apart
            drawn = tf.constant(draw_number(number, micro), tf.int64)
            images, labels = self.placed(batches, micro)
            own = self._gradients_graph(images, labels, tf.constant(0), drawn, sigma)
            sums = own if sums is None else self._add_graph(sums, own)
        return sums

    def placed(self, batches: Batches, micro: int) -> tuple[Any, Any]:
        """Images and labels of one accumulated batch of each step, on each replica."""
        first = micro * self.back_end.replicas
        own = slice(first, first + self.back_end.replicas)
        place = self.back_end.place
        return place(batches.images[:, own]), place(batches.labels[:, own])

    def sigma(self, batches: Batches) -> tf.Tensor | None:
        """Of the images' weights."""
        if self.technique.noise_batch is None:
            return None
        ranks = self.back_end.size // self.back_end.replicas
        sigma = sigma_for(ranks * batches.labels[0].size, self.technique.noise_batch)
        return tf.constant(sigma) if sigma > 0 else None

    def corrections(self, rates: Sequence[float]) -> list[float]:
        """Of the velocities, from the last rate that was applied to each."""
        before = [self.last_rate, *rates[:-1]]
        return [rate / last if last else 1.0 for rate, last in zip(rates, before, strict=True)]

    def average(self, sums: Backward, count: tf.Tensor) -> Backward:
        gradients, square, loss, hits = sums
        return Backward([g / count for g in gradients], square / count, loss / count, hits)

    def _add(self, sums: Backward, own: Backward) -> Backward:
        return tf.nest.map_structure(tf.add, sums, own)

    @property
    def state(self) -> list[tf.Variable]:
        """All variables that a checkpoint holds."""
        others = [*self.optimizer.variables(), *self.loss_scale.variables]
        return self.back_end.state(self.model, others)

    def doing(self) -> tuple[int, str]:
        """Number of the step that a graph is taking, and its part; for another thread."""
        drawn, part = self.progress.numpy().tolist()
        micro, number = divmod(drawn, draw_number(0, 1))
        batch = f", batch {micro + 1} of {micro + 1}" if micro else ""
        return number, WAITING if part == _REDUCING else batch

    def _graph_for(
        self, batches: Batches, earlier: Backward | None, sigma: tf.Tensor | None
    ) -> Any:
        key = (batches.images.shape[2:], earlier is None, sigma is None)
        if key not in self._graphs:
            each = [tf.TensorSpec([None], kind) for kind in (tf.int64, tf.float32, tf.float32)]
            number = tf.TensorSpec([], tf.float32)
            self._graphs[key] = graph(self._steps).get_concrete_function(
                self._spec(batches.images), self._spec(batches.labels), *each,
                None if sigma is None else number,
                earlier and tf.nest.map_structure(tf.type_spec_from_value, earlier), number,
            )  # fmt: skip
        return self._graphs[key]

    def _spec(self, values: npt.NDArray[Any]) -> Any:
        """Of the argument of a graph with any number of steps."""
        last = values[:1, -self.back_end.replicas :]
        one, two = (
            tf.type_spec_from_value(self.back_end.place(np.repeat(last, steps, axis=0)))
            for steps in (1, 2)
        )
        return one.most_specific_common_supertype([two])
