"""The running world of ranks: initialised once, asserted, then passed around as a value."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from train.config.run import RunConfig
from train.distributed.cores import Claims, take_cores
from train.distributed.launch import Launch, Launcher
from train.distributed.quota import Quota, quotas_here
from train.distributed.rendezvous import PATIENCE_S, check_named, meet, meet_nobody
from train.environment import NOTHING
from train.errors import ConfigError, WorldError
from train.record.mount import boot_id
from train.record.run import DataPlane, World

if TYPE_CHECKING:  # it loads TensorFlow
    from train.distributed.strategy import Distribution


@dataclass(frozen=True)
class Runtime:
    """One process of the world. It is one rank, but where a strategy of tf.distribute has all
    replicas of the cell in one process."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cores: tuple[int, ...]
    launcher: Launcher
    gpu: str | None
    gpu_shared: bool  # with another rank of this node
    distribution: Distribution | None = None  # None: Horovod averages the gradients
    claims: Claims = field(default_factory=Claims)

    @property
    def replicas(self) -> int:
        """Ranks that this process stands for."""
        return 1 if self.distribution is None else self.distribution.replicas

    def shares_cores(self) -> bool:
        """Whether another run has used some of its cores so far. With GPUs they do not decide the
        times."""
        return self.gpu is None and self.claims.shared()


#: An exchange in a run goes on for as long as the job is suspended; the watchdog ends what hangs.
EXCHANGE_S = 7 * 24 * 3600


def start(config: RunConfig, launch: Launch, patience_s: float = PATIENCE_S) -> Runtime:
    """Pin this rank, initialise Horovod, and check the world against the config.

    Args:
        patience_s: how long to wait for rank 0, where it says where to meet.

    Raises:
        WorldError: the number of processes is not ``config.processes``. A launcher that lost its
            variables (a cleaned container environment) makes N worlds of one, which must never
            train.
    """
    # refuse before waiting for peers that will never come
    check_size(config.processes, launch.size, launch)
    claims = take_cores(launch)
    cores = claims.cores
    choose_transport(launch, os.environ, patience_s, EXCHANGE_S)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_HOME", NOTHING)  # of ranks that are started by hand, too
    # which groups are in one buffer, a matter of time, decides in which order a ring adds up
    os.environ.setdefault("HOROVOD_DISABLE_GROUP_FUSION", "1")
    if config.technique.precision == "mixed_bfloat16":
        # virtual machines list AMX units that end a process with SIGILL at the first use
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

    import tensorflow as tf  # noqa: PLC0415  (threads are sized above, before TensorFlow starts)

    tf.config.threading.set_intra_op_parallelism_threads(len(cores))
    tf.config.threading.set_inter_op_parallelism_threads(len(cores))
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()

    import horovod.tensorflow as hvd  # noqa: PLC0415

    hvd.init()
    check_size(config.processes, hvd.size(), launch)
    if hvd.rank() != launch.rank:
        raise WorldError(f"Horovod says rank {hvd.rank()}, the launcher {launch.rank}")
    gpu, visible = own_gpus(hvd.local_rank(), config.gpus // config.processes)
    choose_products(config.technique.precision)

    from train.distributed.strategy import open_distribution  # noqa: PLC0415

    distribution = open_distribution(config, launch)
    return Runtime(
        rank=hvd.rank(),
        size=hvd.size(),
        local_rank=hvd.local_rank(),
        local_size=hvd.local_size(),
        cores=cores,
        launcher=launch.launcher,
        gpu=gpu,
        gpu_shared=shares_gpu(launch.launcher, hvd.local_size(), visible),
        distribution=distribution,
        claims=claims,
    )


def share_cores(
    machines: Sequence[str],
    cores: Sequence[Sequence[int]],
    quotas: Sequence[Sequence[Quota]] = (),
) -> bool:
    """Whether two ranks of one machine claim the same core, or the ranks under one CPU quota more
    cores than it gives (one entry per rank in all three)."""
    claimed = [(of, core) for of, own in zip(machines, cores, strict=True) for core in own]
    under: dict[tuple[str, Quota], int] = {}
    for of, own, limits in zip(machines, cores, quotas or [()] * len(cores), strict=True):
        for limit in limits:
            under[of, limit] = under.get((of, limit), 0) + len(own)
    over = any(count > limit.cores for (_, limit), count in under.items())
    return over or len(set(claimed)) < len(claimed)


def shares_gpu(launcher: Launcher, local_size: int, visible: int) -> bool:
    """Whether ranks of this node share a GPU, of which each sees ``visible``.

    Under srun a rank may be shown its own one only; all other launchers show all to all.
    """
    return launcher != "srun" and 0 < visible < local_size


def choose_transport(
    launch: Launch,
    environment: MutableMapping[str, str],
    patience_s: float = PATIENCE_S,
    exchange_s: float = PATIENCE_S,
) -> None:
    """Make the environment ready for ``hvd.init()``: Gloo where a meeting point is named or there
    is nobody to meet, else what the launcher offers.

    ``exchange_s``: how long Gloo waits in any exchange, that of the meeting included; a rank that
    is over it aborts without an exception.

    Raises:
        WorldError: srun offers MPI nothing by which it could find its peers.
        ConfigError: the network interface that the site names is not there.
    """
    environment.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(round(exchange_s)))
    if launch.rendezvous is not None:
        meet(launch, environment, patience_s)
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


def own_gpus(local_rank: int, count: int) -> tuple[str | None, int]:
    """Make ``count`` GPUs visible to this process: their name or None, and of how many they were
    chosen.

    Raises:
        WorldError: there are GPUs, but fewer than one process needs.
    """
    import tensorflow as tf  # noqa: PLC0415

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return None, 0
    if count > len(gpus):
        raise WorldError(
            f"framework mirrored needs {count} GPUs for one process, found {len(gpus)}: ask the "
            "site for as many on one node, or use fewer gpus"
        )
    # sites that bind one GPU per task show a single device to every rank
    first = local_rank * count
    own = [gpus[number % len(gpus)] for number in range(first, first + count)]
    tf.config.set_visible_devices(own, "GPU")
    for gpu in own:
        tf.config.experimental.set_memory_growth(gpu, True)
    details = tf.config.experimental.get_device_details(own[0])
    return str(details.get("device_name", own[0].name)), len(gpus)


def choose_products(precision: str) -> None:
    """Round the factors of float32 products to TF32 if the config asks for it. (TensorFlow's
    default is to round on every GPU that can.)

    Raises:
        ConfigError: TF32 is asked for, and a visible device would compute in float32.
    """
    import tensorflow as tf  # noqa: PLC0415

    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    gpus = tf.config.get_visible_devices("GPU")
    details = map(tf.config.experimental.get_device_details, gpus)
    able = [one.get("compute_capability", (0, 0)) >= (8, 0) for one in details]
    if precision == "tf32" and not (able and all(able)):
        found = "an older GPU" if able else "no GPU"
        raise ConfigError(
            f"precision tf32 needs GPUs of compute capability 8.0 or above (Ampere and later), "
            f"found {found}: say precision: float32"
        )


def machine() -> str:
    """The running kernel: pretend nodes of a practice cluster have names of their own, yet share
    one machine's cores."""
    return boot_id() or socket.gethostname()


def describe_world(runtime: Runtime, cpu: str) -> World:
    """Collective: every rank must call it. The same World on all ranks."""
    import horovod.tensorflow as hvd  # noqa: PLC0415

    replicas = runtime.replicas
    hosts = hvd.allgather_object(socket.gethostname())
    hostnames = tuple(host for host in hosts for _ in range(replicas))
    machines = hvd.allgather_object(machine())
    cores = hvd.allgather_object(runtime.cores)
    quotas = hvd.allgather_object(quotas_here())
    gpu_shared = any(hvd.allgather_object(runtime.gpu_shared))
    by_mpi = hvd.mpi_built() and os.environ.get("HOROVOD_CONTROLLER") != "gloo"
    fewest = min(len(own) for own in cores)
    count = max(1, fewest // replicas)
    plural = "s" * (count != 1)
    held = any(hvd.allgather_object(runtime.claims.shared()))
    too_few = held or fewest < replicas or share_cores(machines, cores, quotas)
    data_plane = _data_plane(runtime, by_mpi=by_mpi)
    # the controller's interface is not NCCL's; on one node there is no other
    hidden = by_mpi or (data_plane == "nccl" and len(set(hosts)) > 1)
    return World(
        size=runtime.size * replicas,
        nodes=len(set(hosts)),
        hostnames=hostnames,
        device_kind="gpu" if runtime.gpu else "cpu",
        device=runtime.gpu or f"{cpu}, {count} core{plural} per rank",
        cores_per_rank=count,
        oversubscribed=gpu_shared if runtime.gpu else too_few,
        launcher=runtime.launcher,
        controller="mpi" if by_mpi else "gloo",
        data_plane=data_plane,
        interface=_interface(runtime, hidden=hidden),
    )


def _data_plane(runtime: Runtime, *, by_mpi: bool) -> DataPlane:
    import horovod.tensorflow as hvd  # noqa: PLC0415

    if runtime.distribution is not None:
        return "tf.distribute"
    if runtime.gpu is not None and hvd.nccl_built() > 0:
        return "nccl"
    gloo = os.environ.get("HOROVOD_CPU_OPERATIONS") == "gloo" or not by_mpi
    return "gloo" if gloo else "mpi"


def _interface(runtime: Runtime, *, hidden: bool) -> str | None:
    if runtime.size == 1:
        return None
    if runtime.distribution is not None:
        return runtime.distribution.interface
    return None if hidden else os.environ.get("HOROVOD_GLOO_IFACE")
