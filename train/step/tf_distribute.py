"""The back end by tf.distribute: a strategy's replicas and its all-reduce in Horovod's place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.distributed.communicator import UnequalRanks
from train.models.layers import StepSeed
from train.models.normalisation import batch_norms
from train.step.backward import squared_norm
from train.tensorflow_internals import all_layers

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


class OverReplicas:
    """The back end by a strategy: this process has a replica on each of its devices.

    ``trained`` is made in the strategy's scope, ``shown`` outside of it, of the same layers: a
    plain model, which evaluation, statistics, checkpoints and hashes use as for Horovod.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, trained: tf.keras.Model, shown: tf.keras.Model
    ) -> None:
        self.strategy, self.trained, self.shown = strategy, trained, shown
        self.size = strategy.num_replicas_in_sync
        self.replicas = len(strategy.extended.worker_devices)  # of this process
        self.local: Callable[[Any], Sequence[Any]] = strategy.experimental_local_results
        self.push()
        with strategy.scope():
            for layer in all_layers(trained):
                layer.finalize_state()  # Normalization computes with copies of its weights

    def place(self, values: npt.NDArray[Any]) -> Any:
        own = (np.ascontiguousarray(values[:, replica]) for replica in range(self.replicas))
        return self.strategy.experimental_distribute_values_from_function(
            lambda _: tf.constant(next(own))
        )

    def run(self, function: Callable[..., Any], *values: Any) -> Any:
        return self.strategy.run(function, args=values)

    def reduce(self, gradients: list[Any], squares: list[Any]) -> tuple[list[Any], list[tf.Tensor]]:
        def on_one(gradients: list[tf.Tensor], squares: list[tf.Tensor]) -> tuple[Any, ...]:
            # the strategy looks for the device of each, which an argument of a graph has not
            own = [tf.identity(value) for value in (*gradients, *squares)]
            means = tf.distribute.get_replica_context().all_reduce(_MEAN, own)
            mean = means[: len(gradients)]
            return mean, [*means[len(gradients) :], squared_norm(mean)]

        mean, means = self.run(on_one, gradients, squares)
        return mean, [self.local(value)[0] for value in means]

    def update(self, variable: Any, function: Callable[..., Any], *values: Any) -> Any:
        # outside of the replicas, where a mirrored variable may be written without an aggregation
        return self.strategy.extended.update(variable, function, args=values)

    def state(self, model: tf.keras.Model, others: Sequence[Any]) -> list[Any]:
        # of several workers the own copy: an aggregated variable would wait for the others
        if self.replicas == 1:
            others = [self.local(variable)[0] for variable in others]
        return [*self.shown.variables, *others]

    def round_s(self) -> float | None:
        return None  # its all-reduces are within graphs alone

    def pull(self) -> None:
        """Give ``shown`` the trained weights. Batch-norm statistics, which each replica has of its
        own images, are pooled over this process' replicas, as
        :func:`train.trainer.batch_statistics.reduce_statistics` does over ranks."""
        for plain, shared in zip(self.shown.variables, self.trained.variables, strict=True):
            plain.assign(self.local(shared)[0])
        for weight in self.trained.trainable_variables:
            first, *others = (copy.numpy().tobytes() for copy in self.local(weight))
            if any(other != first for other in others):
                raise UnequalRanks(f"the replicas' weights {weight.name} differ after training")
        layers = zip(batch_norms(self.shown), batch_norms(self.trained), strict=True)
        for plain, shared in layers:
            means = tf.stack(self.local(shared.moving_mean))
            variances = tf.stack(self.local(shared.moving_variance))
            mean = tf.reduce_mean(means, axis=0)
            plain.moving_mean.assign(mean)
            plain.moving_variance.assign(
                tf.reduce_mean(variances + tf.square(means - mean), axis=0)
            )

    def push(self) -> None:
        """Give the replicas what ``shown`` has."""
        for plain, shared in zip(self.shown.variables, self.trained.variables, strict=True):
            for copy in self.local(shared):
                copy.assign(plain)
