"""The strategy of tf.distribute that a cell asks for, and the world that it makes.

Made at program start: TensorFlow takes its devices and its server only before its first operation.
Horovod carries all that is no gradient, so that records are alike.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import numpy as np
import tensorflow as tf

from train.config.run import RunConfig
from train.distributed.communicator import allgather
from train.distributed.interfaces import own_interface, this_host
from train.distributed.launch import Launch
from train.tensorflow_internals import set_heartbeat

_ADDRESS_BYTES = 64
#: TensorFlow's own 10 s are over where a rank with one core is busy with its first step.
_HEARTBEAT_S = 120


def open_strategy(config: RunConfig, launch: Launch, size: int) -> tuple[Any, str | None]:
    """Collective: every process must call it, after ``join()`` and before any operation of
    TensorFlow.

    Returns:
        The strategy, None if Horovod averages the gradients; and the network interface that its
        gradients take, None if they stay in this process.
    """
    if config.framework == "mirrored":
        return _mirrored(config.gpus), None
    if config.framework == "multi_worker_mirrored":
        # Gloo's; under MPI, by the same rules
        name = os.environ.get("HOROVOD_GLOO_IFACE")
        interface = (
            this_host().named(name) if name else own_interface(os.environ, nodes=launch.nodes)
        )
        # a port of its own, held until TensorFlow's server, which shares it, is there: other ranks
        # and programs look for ports at the same time
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind((interface.address, 0))
            workers = _addresses(f"{interface.address}:{held.getsockname()[1]}", size)
            return _multi_worker(workers, launch.rank), interface.name
    return None, None


def _mirrored(replicas: int) -> tf.distribute.Strategy:
    """One replica per visible GPU; without a GPU, per logical device, of which a CPU can have any
    number. They share the threads of this process."""
    if tf.config.get_visible_devices("GPU"):
        return tf.distribute.MirroredStrategy([f"GPU:{number}" for number in range(replicas)])
    (cpu,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(replicas)]
    tf.config.set_logical_device_configuration(cpu, parts)
    return tf.distribute.MirroredStrategy([f"CPU:{part}" for part in range(replicas)])


def _multi_worker(workers: list[str], rank: int) -> tf.distribute.Strategy:
    """NCCL between GPUs, else TensorFlow's own ring over gRPC, whose server takes the operations of
    anyone who can reach it: for the network of a cluster's nodes, not for an open one."""
    # gRPC would ask a site's web proxy for the way to the other nodes, and wait for ever
    hosts = sorted({worker.rsplit(":", 1)[0] for worker in workers})
    os.environ["no_grpc_proxy"] = ",".join(hosts)  # noqa: SIM112  (as gRPC spells it)
    os.environ["TF_GRPC_REUSE_PORT"] = "true"  # with the socket that holds it
    set_heartbeat(len(workers), _HEARTBEAT_S)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": workers}),
        task_type="worker",
        task_id=rank,
        rpc_layer="grpc",
    )
    return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)


def _addresses(own: str, size: int) -> list[str]:
    """In a graph and a session of its own: Horovod's eager operations would begin TensorFlow, after
    which no strategy of several workers can be made."""
    if size == 1:
        return [own]
    row = np.frombuffer(own.encode().ljust(_ADDRESS_BYTES, b"\0"), np.uint8)
    only_cpu = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    with tf.Graph().as_default(), tf.compat.v1.Session(config=only_cpu) as session:
        rows = session.run(allgather(tf.constant(row[np.newaxis]), "worker_addresses"))
    return [bytes(row).rstrip(b"\0").decode() for row in rows]
