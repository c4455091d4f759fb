"""What is used of the private parts of TensorFlow and Keras 2.15, which another version may lack or
mean something else by. No other file of train/ imports such parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from keras.src.backend import RandomGenerator
from keras.src.engine.functional import Functional
from keras.src.layers.rnn.dropout_rnn_cell_mixin import DropoutRNNCellMixin
from keras.src.mixed_precision.policy import policy_scope
from keras.src.optimizers.legacy.optimizer_v2 import _var_key as variable_key
from keras.src.saving.legacy.hdf5_format import (
    load_attributes_from_hdf5_group,
    save_weights_to_hdf5_group,
)
from tensorflow.python.autograph.core.ag_ctx import ControlStatusCtx, Status
from tensorflow.python.eager import context
from tensorflow.python.framework.op_def_registry import get as operation_definition
from tensorflow.python.ops.control_flow_v2_func_graphs import CondBranchFuncGraph
from tensorflow.tsl.protobuf.coordination_config_pb2 import CoordinatedJob

__all__ = [
    "DropoutRNNCellMixin",
    "Functional",
    "RandomGenerator",
    "load_attributes_from_hdf5_group",
    "operation_definition",
    "policy_scope",
    "save_weights_to_hdf5_group",
    "variable_key",  # equal for a variable and its copies under tf.distribute
]


def with_autograph() -> AbstractContextManager[Any]:
    """Functions that are traced inside are converted, as those that Keras traces itself."""
    return ControlStatusCtx(Status.ENABLED)


def graph_outside_of_branches() -> Any:
    """The present graph; within branches of tf.cond the one that these stand in."""
    graph = tf.compat.v1.get_default_graph()
    while isinstance(graph, CondBranchFuncGraph):
        graph = graph.outer_graph
    return graph


def set_heartbeat(workers: int, seconds: int) -> None:
    """How long the server of MultiWorkerMirroredStrategy waits for a worker's sign of life; the
    strategy takes what is there, and has no argument for it."""
    context.context().configure_coordination_service(
        "standalone",
        "/job:worker/replica:0/task:0",
        coordinated_jobs=[CoordinatedJob(name="worker", num_tasks=workers)],
        heartbeat_timeout_in_ms=1000 * seconds,
    )


def all_layers(model: tf.keras.layers.Layer) -> Iterator[tf.keras.layers.Layer]:
    """Each layer of a network once, those inside nested networks and inside other layers, too."""
    return iter(model._flatten_layers(include_self=False))


def layers_within(layer: tf.keras.layers.Layer) -> Iterator[tf.keras.layers.Layer]:
    """Those that a layer holds itself, not what these hold."""
    return iter(layer._flatten_layers(recursive=False, include_self=False))


def calls(model: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Each call of a layer in a functional network (a node), and the layers whose outputs it
    gets."""
    for node in (x for level in model._nodes_by_depth.values() for x in level):
        yield node, [source(tensor) for tensor in node.keras_inputs]


def source(tensor: Any) -> Any:
    """The layer whose output the tensor is, in a functional network."""
    return tensor._keras_history.layer
