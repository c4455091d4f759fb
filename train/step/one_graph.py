"""Several steps in one call of one graph, so that gradients travel while others are computed.

The three graphs of :class:`train.step.train_step.TrainStep` are one here: no host is between them,
Horovod gets each large gradient as soon as the backward pass has it. Small networks gain as much by
taking many steps a call. No part is a function of its own there: it would give all its results at
once. All ranks take the same number of steps: the loop ends at the first one that is not applied,
which the reduced gradient decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.data.batches import Batches
from train.models.layers import draw_number, graph
from train.step.backward import Backward
from train.step.result import StepResult
from train.step.train_step import ADDING_UP, TrainStep


class OneGraphStep(TrainStep):
    """The step in both forms: :meth:`several` trains; calling the object takes the step in parts,
    to measure each."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self._graphs: dict[tuple[Any, ...], Any] = {}

    def several(self, batches: Batches, rates: Sequence[float], first: int) -> list[StepResult]:
        """One step for each rate, or fewer: one that was not applied is the last.

        batches: of all steps; of one only if gradients are accumulated, whose batches except the
        last are calls of their own. first: 0-based number of the first step over the run.
        """
        accumulated = batches.images.shape[1] // self.replicas
        assert accumulated == 1 or len(rates) == 1, "accumulated steps are taken one by one"
        gain = self.adascale.gain if self.adascale else 1.0
        assert gain == 1 or len(rates) == 1, "AdaScale's gain follows from the step before"
        rates = [rate * gain for rate in rates]
        images = batches.labels[0].size
        sigma = self._sigma(images)
        earlier = None
        if accumulated > 1:
            earlier = self._summed(batches.of_step(0)[:-1], first, sigma, of=accumulated)
        numbers = [draw_number(first + n, accumulated - 1) for n in range(len(rates))]
        table, ratios, taken = self._graph_for(batches, earlier, sigma)(
            self._placed(batches.images), self._placed(batches.labels),
            tf.constant(numbers, tf.int64), tf.constant(rates, tf.float32),
            tf.constant(self._corrections(rates), tf.float32), sigma, earlier,
            tf.constant(accumulated, tf.float32),
        )  # fmt: skip
        rows = table.numpy()[: int(taken)].tolist()
        return [
            self._result(loss, int(hits), images, squares, rate, gain, own)
            for (loss, hits, *squares), rate, own in zip(rows, rates, ratios.numpy(), strict=False)
        ]

    def _graph_for(
        self, batches: Batches, earlier: Backward | None, sigma: tf.Tensor | None
    ) -> Any:
        key = (batches.images.shape[2:], earlier is None, sigma is None)
        if key not in self._graphs:
            each = [tf.TensorSpec([None], kind) for kind in (tf.int64, tf.float32, tf.float32)]
            number = tf.TensorSpec([], tf.float32)
            self._graphs[key] = graph(self._take_steps).get_concrete_function(
                self._spec(batches.images), self._spec(batches.labels), *each,
                None if sigma is None else number,
                earlier and tf.nest.map_structure(tf.type_spec_from_value, earlier), number,
            )  # fmt: skip
        return self._graphs[key]

    def _spec(self, values: npt.NDArray[Any]) -> Any:
        one, two = (
            tf.type_spec_from_value(self._placed(np.repeat(values[:1], steps, axis=0)))
            for steps in (1, 2)
        )
        return one.most_specific_common_supertype([two])

    def _take_steps(
        self, images: Any, labels: Any, numbers: tf.Tensor, rates: tf.Tensor,
        corrections: tf.Tensor, sigma: tf.Tensor | None, earlier: Any, accumulated: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:  # fmt: skip
        """Rows of loss, hits, and squares of batches, ranks and all; trust factors; steps taken."""
        steps = tf.shape(rates)[0]

        def take(step: tf.Tensor, _: tf.Tensor, table: Any, ratios: Any) -> tuple[Any, ...]:
            begun = self._reported(numbers[step], "")
            with tf.control_dependencies(begun):
                own = self._of_one(images, labels, step, numbers[step], sigma)
            if earlier is not None:
                own = self._mean(self._add(earlier, own), accumulated)
            if self.size > 1:  # who waits for the others must not look as if it were computing
                self._reported(numbers[step], ADDING_UP, *self._local_results(own.square))
            gradients, *squares = self._reduce(own.gradients, own.square, earlier is not None)
            applied = tf.math.is_finite(squares[-1])

            def update() -> tf.Tensor:
                with tf.control_dependencies(
                    [self._update(gradients, rates[step], corrections[step])]
                ):
                    return tf.identity(applied)

            applied = tf.cond(applied, update, lambda: applied)
            self.loss_scale.update(applied)
            hits = tf.add_n([tf.cast(hits, tf.float32) for hits in self._local_results(own.hits)])
            loss = tf.reduce_mean(tf.stack(self._local_results(own.loss)))
            table = table.write(step, tf.stack([loss, hits, *squares]))
            if self.trust:
                with tf.control_dependencies([applied]):
                    ratios = ratios.write(step, self.trust.factors.read_value())
            return step + 1, applied, table, ratios

        width = len(self.trust.names) if self.trust else 0
        empty = [tf.TensorArray(tf.float32, steps, element_shape=s) for s in ([5], [2, width])]
        taken, _, table, ratios = tf.while_loop(
            lambda step, applied, *_: (step < steps) & applied,
            take,
            (tf.constant(0), tf.constant(True), *empty),
            parallel_iterations=1,  # the next step needs this one's weights, and its names
        )
        return table.stack(), ratios.stack(), taken

    def _reported(self, number: tf.Tensor, part: str, *after: tf.Tensor) -> list[tf.Operation]:
        """Report to the watchdog, from within the graph, the part that begins when ``after`` are
        computed. Copied to the host, they are there, and not only queued on a GPU."""

        def report(number: Any, *_: Any) -> None:
            micro, step = divmod(int(number), draw_number(0, 1))
            self.beat(step, part or micro * f", batch {micro + 1} of {micro + 1}")

        with tf.device("CPU"):
            return [tf.numpy_function(report, [number, *after], [], stateful=True)]

    def _placed(self, values: npt.NDArray[Any]) -> Any:
        """The last batch of each step, [steps, b, ...], as an argument of the graph."""
        return tf.constant(np.ascontiguousarray(values[:, -1]))

    def _of_one(
        self, images: Any, labels: Any, step: tf.Tensor, number: tf.Tensor, sigma: tf.Tensor | None
    ) -> Any:
        return self._local(images[step], labels[step], number, sigma)
