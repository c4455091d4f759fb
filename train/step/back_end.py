"""What carries a step, computes and reduces: the ranks of Horovod here, or the replicas of
tf.distribute. A value is a tensor here, and there one of each replica."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.config.technique import Technique
from train.distributed.communicator import allreduce_sum
from train.models.layers import graph
from train.step.backward import squared_norm
from train.step.loss_scale import LossScale, NoLossScale
from train.step.reduction import Tensors, reducer
from train.step.tf_distribute import OverReplicas


class OverRanks:
    """The back end by Horovod: this process is one rank."""

    replicas = 1  # ranks in this process

    def __init__(
        self, technique: Technique, size: int, loss_scale: LossScale | NoLossScale
    ) -> None:
        self.size = size  # ranks of the world, each with batches of its own
        self._reduced = reducer(technique, size)
        self._round = graph(_round)  # only in a graph does Horovod know its name
        # what float16 would lose on its way between the ranks it loses in the backward pass too
        self._wire_scale = loss_scale if technique.wire.overflows else NoLossScale()

    def place(self, values: npt.NDArray[Any]) -> tf.Tensor:
        """[steps, replicas, b, ...] as an argument of a graph: [steps, b, ...] of each replica."""
        return tf.constant(np.ascontiguousarray(values[:, 0]))

    def run(self, function: Callable[..., Any], *values: Any) -> Any:
        """``function`` on each replica."""
        return function(*values)

    def reduce(self, gradients: Tensors, squares: Tensors) -> tuple[Tensors, Tensors]:
        """Over all ranks: the mean gradient, and of each of the squares its mean, followed by the
        squared norm of the mean gradient."""
        scaled, means = self._reduced(self._wire_scale.scaled(gradients), squares)
        mean = self._wire_scale.unscaled(scaled)
        return mean, [*means, squared_norm(mean)]

    def update(self, variable: tf.Variable, function: Callable[..., Any], *values: Any) -> Any:
        """``function`` of a variable that all replicas have in common."""
        return function(variable, *values)

    def local(self, value: tf.Tensor) -> Sequence[tf.Tensor]:
        """The tensors of this process."""
        return (value,)

    def state(self, model: tf.keras.Model, others: Sequence[tf.Variable]) -> list[tf.Variable]:
        """All variables that a checkpoint holds."""
        return [*model.variables, *others]

    def pull(self) -> None:
        """The evaluated model is the trained one."""

    push = pull

    def round_s(self) -> float | None:
        """Seconds of the smallest all-reduce; None if there is none to time."""
        if self.size == 1:
            return None
        begin = time.perf_counter()
        float(self._round(tf.constant(1.0)))
        return time.perf_counter() - begin


def _round(one: tf.Tensor) -> tf.Tensor:
    """Of an argument: that of a constant would be taken once, when the graph is made."""
    with tf.device("CPU"):  # a GPU's own queue is another matter
        return allreduce_sum(one, "meeting")


BackEnd = OverRanks | OverReplicas
