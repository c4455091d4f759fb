"""The running world of ranks: initialised once, asserted, then passed around as a value."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from train.config import RunConfig
from train.launch import Launch, Launcher, own_cores, pin
from train.record import World
from train.rendezvous import check_named, meet, meet_nobody
from train.task import WorldError


@dataclass(frozen=True)
class Runtime:
    rank: int
    size: int
    local_rank: int
    local_size: int
    cores: tuple[int, ...]
    launcher: Launcher
    gpu: str | None
    gpu_shared: bool  # with another rank of this node


def start(config: RunConfig, launch: Launch) -> Runtime:
    """Pin this rank, initialise Horovod, and check the world against the config.

    Raises:
        WorldError: the number of ranks is not ``config.gpus``. A launcher that lost its variables
            (a cleaned container environment) makes N worlds of one, which must never train.
    """
    cores = own_cores(os.sched_getaffinity(0), launch, os.cpu_count())
    # refuse before waiting for peers that will never come
    check_size(config.gpus, launch.size, launch)
    pin(cores)
    choose_transport(launch, os.environ)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    import tensorflow as tf  # noqa: PLC0415  (threads are sized above, before TensorFlow starts)

    tf.config.threading.set_intra_op_parallelism_threads(len(cores))
    tf.config.threading.set_inter_op_parallelism_threads(len(cores))
    tf.config.experimental.enable_op_determinism()

    import horovod.tensorflow as hvd  # noqa: PLC0415

    hvd.init()
    check_size(config.gpus, hvd.size(), launch)
    if hvd.rank() != launch.rank:
        raise WorldError(f"Horovod says rank {hvd.rank()}, the launcher {launch.rank}")
    gpu, visible = own_gpu(hvd.local_rank())
    return Runtime(
        rank=hvd.rank(),
        size=hvd.size(),
        local_rank=hvd.local_rank(),
        local_size=hvd.local_size(),
        cores=cores,
        launcher=launch.launcher,
        gpu=gpu,
        gpu_shared=shares_gpu(launch.launcher, hvd.local_size(), visible),
    )


def share_cores(machines: Sequence[str], cores: Sequence[Sequence[int]]) -> bool:
    """Whether two ranks of one machine claim the same core (one entry per rank in both)."""
    claimed = [(of, core) for of, own in zip(machines, cores, strict=True) for core in own]
    return len(set(claimed)) < len(claimed)


def shares_gpu(launcher: Launcher, local_size: int, visible: int) -> bool:
    """Whether ranks of this node share a GPU, of which each sees ``visible``.

    Under srun a rank may be shown its own one only; all other launchers show all to all.
    """
    return launcher != "srun" and 0 < visible < local_size


def choose_transport(launch: Launch, environment: MutableMapping[str, str]) -> None:
    """Make the environment ready for ``hvd.init()``: Gloo where a meeting point is named or there
    is nobody to meet, else what the launcher offers.

    Raises:
        WorldError: srun offers MPI nothing by which it could find its peers.
        ConfigError: the network interface that the site names is not there.
    """
    if launch.rendezvous is not None:
        meet(launch, environment)
    elif launch.size == 1 and (launch.launcher == "none" or not launch.wired):
        meet_nobody(environment)
    else:
        check_named(environment)
        if not launch.wired:
            raise WorldError(
                f"srun started {launch.size} tasks, but this one has no PMIx variables, so that "
                "MPI would abort or make a world of one of each. Either srun lacks --mpi=pmix "
                "(`srun --mpi=list` shows what there is), or the container dropped PMIX_*: "
                f"{_DROPPED}"
            )


_DROPPED = (
    "take --cleanenv, --containall, -e and -C out of the container's arguments and APPTAINER_* "
    "variables, or let the ranks meet by Gloo (`mpi: gloo` in the site file)"
)


def check_size(expected: int, size: int, launch: Launch) -> None:
    """
    Raises:
        WorldError: the number of ranks is not the one that the config asks for.
    """
    if size == expected:
        return
    found = f"found a world of {size} rank{'s' * (size != 1)} (launcher: {launch.launcher})"
    if size == 1 and launch.remote:
        raise WorldError(
            f"{found}, expected {expected} as the config says. A supervisor started this rank, so "
            "the container probably dropped the launcher's variables (SLURM_*, PMIX_*, "
            f"HOROSCALE_*), and each task would train alone: {_DROPPED}"
        )
    raise WorldError(
        f"{found}, expected {expected} as the config says. Start it with make sweep, or by hand: "
        f"horovodrun -np {expected} python -m train CONFIG"
    )


def own_gpu(local_rank: int) -> tuple[str | None, int]:
    """Make one GPU visible to this rank: its name or None, and of how many it was chosen."""
    import tensorflow as tf  # noqa: PLC0415

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return None, 0
    # sites that bind one GPU per task show a single device to every rank
    gpu = gpus[local_rank % len(gpus)]
    tf.config.set_visible_devices(gpu, "GPU")
    tf.config.experimental.set_memory_growth(gpu, True)
    name = str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
    return name, len(gpus)


def _machine() -> str:
    """The running kernel: pretend nodes of a practice cluster have names of their own, yet share
    one machine's cores."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def describe_world(runtime: Runtime, cpu: str) -> World:
    """Collective: every rank must call it. The same World on all ranks."""
    import horovod.tensorflow as hvd  # noqa: PLC0415

    hostnames = tuple(hvd.allgather_object(socket.gethostname()))
    machines = hvd.allgather_object(_machine())
    cores = hvd.allgather_object(runtime.cores)
    gpu_shared = any(hvd.allgather_object(runtime.gpu_shared))
    nodes = len(set(hostnames))
    by_mpi = hvd.mpi_built() and os.environ.get("HOROVOD_CONTROLLER") != "gloo"
    gloo_cpu = os.environ.get("HOROVOD_CPU_OPERATIONS") == "gloo" or not by_mpi
    nccl = runtime.gpu is not None and hvd.nccl_built() > 0
    count = min(len(own) for own in cores)
    plural = "s" * (count != 1)
    return World(
        size=runtime.size,
        nodes=nodes,
        hostnames=hostnames,
        device_kind="gpu" if runtime.gpu else "cpu",
        device=runtime.gpu or f"{cpu}, {count} core{plural} per rank",
        cores_per_rank=count,
        oversubscribed=gpu_shared if runtime.gpu else share_cores(machines, cores),
        launcher=runtime.launcher,
        controller="mpi" if by_mpi else "gloo",
        data_plane="nccl" if nccl else "gloo" if gloo_cpu else "mpi",
        interface=None if by_mpi or runtime.size == 1 else os.environ.get("HOROVOD_GLOO_IFACE"),
    )
