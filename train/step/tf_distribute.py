"""The train step by tf.distribute: the strategy's replicas and its all-reduce in Horovod's place.

Validation, statistics, checkpoints and hashes use a plain model with the same weights, so that they
are the same code for every framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.config.technique import Technique
from train.data.batches import Batch
from train.distributed.communicator import UnequalRanks
from train.models.layers import StepSeed, graph
from train.models.normalisation import batch_norms
from train.step.backward import Backward, squared_norm
from train.step.one_graph import OneGraphStep

_MEAN = tf.distribute.ReduceOp.MEAN


class ReplicaSeed(StepSeed):
    """A variable that is read where it is: every replica writes its step into its own copy."""

    def __init__(self, strategy: tf.distribute.Strategy, streams: Sequence[int]) -> None:
        tf.Module.__init__(self, name="step_seed")
        with strategy.scope():
            self.value = tf.Variable(
                [0, 0], dtype=tf.int64, trainable=False, name="step_seed",
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )  # fmt: skip
        copies = strategy.experimental_local_results(self.value)
        for copy, stream in zip(copies, streams, strict=True):
            copy.assign([stream, 0])


class DistributedStep(OneGraphStep):
    """One optimizer step on the batches of this process' replicas, one of each. Model and
    optimizer are made in the strategy's scope, ``shown`` outside of it, of the same layers."""

    def __init__(
        self,
        model: tf.keras.Model,
        optimizer: Any,
        technique: Technique,
        seed: StepSeed,
        strategy: tf.distribute.Strategy,
        shown: tf.keras.Model,
    ) -> None:
        super().__init__(model, optimizer, technique, seed, size=strategy.num_replicas_in_sync)
        self.strategy, self.shown = strategy, shown
        self.replicas = len(strategy.extended.worker_devices)  # of this process
        self._replicas_graph = graph(lambda *batch: strategy.run(self._local, args=batch))
        self.push()

    @property
    def state(self) -> list[Any]:
        # of several workers the own copy: an aggregated variable would wait for the others
        own = [*self.optimizer.variables(), *self.loss_scale.variables]
        if self.replicas == 1:
            own = [self._local_results(variable)[0] for variable in own]
        return [*self.shown.variables, *own]

    def pull(self) -> None:
        """Statistics of batch norm, which each replica has of its own images, are pooled over
        this process' replicas, as :func:`train.trainer.batch_statistics.reduce_statistics` does
        over ranks."""
        for plain, shared in zip(self.shown.variables, self.model.variables, strict=True):
            plain.assign(self._local_results(shared)[0])
        for weight in self.model.trainable_variables:
            first, *others = (copy.numpy().tobytes() for copy in self._local_results(weight))
            if any(other != first for other in others):
                raise UnequalRanks(f"the replicas' weights {weight.name} differ after training")
        layers = zip(batch_norms(self.shown), batch_norms(self.model), strict=True)
        for plain, shared in layers:
            means = tf.stack(self._local_results(shared.moving_mean))
            variances = tf.stack(self._local_results(shared.moving_variance))
            mean = tf.reduce_mean(means, axis=0)
            plain.moving_mean.assign(mean)
            plain.moving_variance.assign(
                tf.reduce_mean(variances + tf.square(means - mean), axis=0)
            )

    def push(self) -> None:
        for plain, shared in zip(self.shown.variables, self.model.variables, strict=True):
            for copy in self._local_results(shared):
                copy.assign(plain)

    def _gradients(self, batches: Sequence[Batch], step: int) -> Backward:
        """As the parent's, but every tensor is one of each replica, of a batch of its own."""
        sigma = self._sigma(sum(len(labels) for _, labels in batches))
        images, labels = (self._spread(parts) for parts in zip(*batches, strict=True))
        result = self._replicas_graph(images, labels, tf.constant(step, tf.int64), sigma)
        for own in self._local_results(result.square):
            float(own)  # made of all gradients: they are there when it is
        return result

    def _meet(self) -> tuple[None, None]:
        return None, None

    def _placed(self, values: npt.NDArray[Any]) -> Any:
        return self._spread([np.ascontiguousarray(values[:, own]) for own in range(self.replicas)])

    def _spread(self, parts: Sequence[npt.NDArray[Any]]) -> Any:
        own = iter(parts)
        return self.strategy.experimental_distribute_values_from_function(
            lambda _: tf.constant(next(own))
        )

    def _of_one(
        self, images: Any, labels: Any, step: tf.Tensor, number: tf.Tensor, sigma: tf.Tensor | None
    ) -> Any:
        return self.strategy.run(super()._of_one, args=(images, labels, step, number, sigma))

    def _reduce(self, gradients: list[Any], square: Any, accumulated: bool) -> tuple[Any, ...]:
        def on_one(gradients: list[tf.Tensor], square: tf.Tensor) -> tuple[Any, ...]:
            # the strategy looks for the device of each, which an argument of a graph has not
            own = [tf.identity(value) for value in (*gradients, square)]
            *mean, small = tf.distribute.get_replica_context().all_reduce(_MEAN, own)
            return mean, small, squared_norm(mean)

        mean, small, big = self.strategy.run(on_one, args=(gradients, square))
        small, big = self._local_results(small)[0], self._local_results(big)[0]
        return mean, small, small, big

    def _update(self, gradients: list[Any], rate: tf.Tensor, correction: tf.Tensor) -> tf.Tensor:
        # outside of the replicas, where a mirrored variable may be written without an aggregation
        self.optimizer.learning_rate.assign(rate)
        for velocity in self._velocities:
            self.strategy.extended.update(
                velocity, lambda own, factor: own.assign(own * factor), args=(correction,)
            )

        done = self.strategy.run(self._apply, args=(gradients,))
        return tf.concat(self._local_results(done), axis=0)

    def _local_results(self, value: Any) -> Any:
        return self.strategy.experimental_local_results(value)
