"""The collectives as training calls them: Horovod's, on TensorFlow tensors, in graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from train.interconnect.collectives.operations import Call, Maker
from train.interconnect.collectives.payload import Floats
from train.interconnect.collectives.record import Operation, Place


def horovod_maker(process_sets: dict[int, Any]) -> Maker:
    """
    Args:
        process_sets: number of ranks -> Horovod's set of the first so many.
    """

    def make(operation: Operation, place: Place, data: Floats, ranks: int) -> Call | None:
        name = f"{operation}.{place}.{ranks}.{data.nbytes}"
        if place == "out":
            return _out_of_place(operation, name, data, process_sets[ranks])
        if operation == "all_reduce":
            return _fused(name, data, process_sets[ranks])
        if operation == "broadcast":
            return _of_a_variable(name, data, process_sets[ranks])
        return None  # Horovod has no call that leaves its result where the input was

    return make


def _out_of_place(operation: Operation, name: str, data: Floats, chosen: Any) -> Call:
    import horovod.tensorflow as hvd  # noqa: PLC0415  (initialised by now)
    import tensorflow as tf  # noqa: PLC0415

    how: dict[Operation, Callable[[Any], Any]] = {
        "all_reduce": lambda x: hvd.allreduce(x, op=hvd.Sum, name=name, process_set=chosen),
        "all_gather": lambda x: hvd.allgather(x, name=name, process_set=chosen),
        "reduce_scatter": lambda x: hvd.reducescatter(x, op=hvd.Sum, name=name, process_set=chosen),
        "broadcast": lambda x: hvd.broadcast(x, 0, name=name, process_set=chosen),
        "all_to_all": lambda x: hvd.alltoall(x, name=name, process_set=chosen),
    }
    source = tf.constant(data)
    return _call(tf.function(lambda: [how[operation](source)]))


def _fused(name: str, data: Floats, chosen: Any) -> Call:
    """Of two tensors or more: within Horovod's fusion buffer, as gradients are reduced."""
    import horovod.tensorflow as hvd  # noqa: PLC0415
    import tensorflow as tf  # noqa: PLC0415

    half = data.size // 2
    parts = [tf.constant(data[:half]), tf.constant(data[half:])]
    return _call(
        tf.function(lambda: hvd.grouped_allreduce(parts, op=hvd.Sum, name=name, process_set=chosen))
    )


def _of_a_variable(name: str, data: Floats, chosen: Any) -> Call:
    import horovod.tensorflow as hvd  # noqa: PLC0415
    import tensorflow as tf  # noqa: PLC0415

    variable = tf.Variable(data, name=name)

    @tf.function
    def spread() -> None:
        hvd.broadcast_([variable], 0, name=name, process_set=chosen)

    def fresh() -> None:
        variable.assign(data)

    return Call(spread, lambda: np.asarray(variable), fresh)


def _call(graph: Callable[[], list[Any]]) -> Call:
    left: list[Any] = []

    def run() -> None:
        left[:] = graph()
        if "GPU" in left[-1].device:
            left[-1][:1].numpy()  # a GPU answers before it is done

    return Call(run, lambda: np.concatenate([part.numpy() for part in left]), lambda: None)
