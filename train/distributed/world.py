"""The running world of ranks: initialised once, asserted, then passed around as a value."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import MutableMapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from train.config.run import RunConfig
from train.distributed.interfaces import NAME, this_host
from train.distributed.launch import Launch, Launcher
from train.distributed.machine.claims import Claims, claim
from train.distributed.machine.cores import take_cores
from train.distributed.machine.gpus import choose_products, gpu_ids
from train.distributed.machine.quota import Quota
from train.distributed.rendezvous import PATIENCE_S, meet
from train.errors import WorldError
from train.program.environment import NOTHING

if TYPE_CHECKING:
    from train.distributed.communicator import Ranks, Waiting


@dataclass(frozen=True)
class Runtime:
    """One process of the world. It is one rank, unless a strategy of tf.distribute has all replicas
    of the cell in one process."""

    ranks: Ranks
    launcher: Launcher
    gpus: tuple[str, ...]  # models, one per replica; () without GPUs
    cores: Claims[int] = field(default_factory=Claims)
    held_gpus: Claims[str] = field(default_factory=Claims)
    replicas: int = 1  # ranks that this process stands for
    strategy: Any = None  # tf.distribute.Strategy; None: Horovod averages the gradients
    interface: str | None = None  # network interface of the strategy's gradients

    @property
    def rank(self) -> int:
        return self.ranks.rank

    @property
    def size(self) -> int:
        return self.ranks.size

    def shares(self) -> bool:
        """Whether another run, or another rank, has used some of its cores so far, or of its GPUs:
        with these, cores do not decide the times."""
        return (self.held_gpus if self.gpus else self.cores).shared()


#: An exchange in a run goes on for as long as the job is suspended; the watchdog ends what hangs.
EXCHANGE_S = 7 * 24 * 3600


def start(
    config: RunConfig, launch: Launch, patience_s: float = PATIENCE_S,
    waiting: Waiting = nullcontext,
) -> Runtime:  # fmt: skip
    """Pin this rank, initialise Horovod, and check the world against the config. patience_s: how
    long to wait for rank 0's address, if ranks meet by Gloo. waiting: of :class:`Ranks`.

    Raises:
        WorldError: the number of processes is not ``config.processes``: a launcher that lost its
            variables (a cleaned container environment) makes N worlds of one.
    """
    # refuse before waiting for peers that will never come
    check_size(config.processes, launch.size, launch)
    cores = take_cores(launch)
    choose_transport(launch, os.environ, patience_s, EXCHANGE_S)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_HOME", NOTHING)  # of ranks that are started by hand, too
    if config.deterministic and config.processes > 2:
        # messages that are ready at the same time share a buffer, and their places in it decide in
        # which order a ring adds up; two numbers have one sum
        os.environ.setdefault("HOROVOD_DISABLE_GROUP_FUSION", "1")
    if config.technique.precision == "mixed_bfloat16":
        # virtual machines list AMX units that end a process with SIGILL at the first use
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

    import tensorflow as tf  # noqa: PLC0415  (threads are sized above, before TensorFlow starts)

    tf.config.threading.set_intra_op_parallelism_threads(len(cores.own))
    tf.config.threading.set_inter_op_parallelism_threads(len(cores.own))
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()

    from train.distributed.communicator import join  # noqa: PLC0415
    from train.distributed.strategy import open_strategy  # noqa: PLC0415

    ranks = join(waiting)
    check_size(config.processes, ranks.size, launch)
    if ranks.rank != launch.rank:
        raise WorldError(f"Horovod says rank {ranks.rank}, the launcher {launch.rank}")
    replicas = config.gpus // config.processes
    gpus, held_gpus = own_gpus(ranks.local_rank, ranks.local_size, replicas)
    choose_products(config.technique.precision)
    strategy, interface = open_strategy(config, launch, ranks.size)
    return Runtime(ranks, launch.launcher, gpus, cores, held_gpus, replicas, strategy, interface)


def share_cores(
    machines: Sequence[str], cores: Sequence[Sequence[int]], quotas: Sequence[Sequence[Quota]]
) -> bool:
    """Whether two ranks of one machine claim the same core, or the ranks under one CPU quota more
    cores than it gives (one entry per rank in all three)."""
    claims = Counter((of, core) for of, own in zip(machines, cores, strict=True) for core in own)
    under: Counter[tuple[str, Quota]] = Counter()
    for of, own, limits in zip(machines, cores, quotas, strict=True):
        under.update({(of, limit): len(own) for limit in limits})
    over = any(count > limit.cores for (_, limit), count in under.items())
    return over or max(claims.values()) > 1


def choose_transport(
    launch: Launch,
    environment: MutableMapping[str, str],
    patience_s: float = PATIENCE_S,
    exchange_s: float = PATIENCE_S,
) -> None:
    """Make the environment ready for ``hvd.init()``: Gloo if a meeting point is named or there is
    nobody to meet, else what the launcher offers. ``exchange_s``: how long Gloo waits in any
    exchange, the meeting included; a rank that is over it aborts without an exception."""
    environment.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(round(exchange_s)))
    alone = launch.size == 1 and (launch.launcher == "none" or not launch.wired)
    if launch.rendezvous is not None or alone:
        meet(launch, environment, patience_s)
        return
    if name := environment.get(NAME):
        this_host().named(name)  # Open MPI's own words on a missing one are a riddle
    if not launch.wired:
        raise WorldError(
            f"srun started {launch.size} tasks, but this one has no PMIx variables, so that MPI "
            "would abort or make a world of one of each. Either srun lacks --mpi=pmix (`srun "
            f"--mpi=list` shows what there is), or the container dropped PMIX_*: {_DROPPED}"
        )


_DROPPED = (
    "take --cleanenv, --containall, -e and -C out of the container's arguments and APPTAINER_* "
    "variables, or let the ranks meet by Gloo (`mpi: gloo` in the site file)"
)


def check_size(expected: int, size: int, launch: Launch) -> None:
    """Raises WorldError: the number of ranks is not the one that the config asks for."""
    if size == expected:
        return
    todo = (
        "A supervisor started this rank, so the container probably dropped the launcher's "
        f"variables (SLURM_*, PMIX_*, HOROSCALE_*), and each task would train alone: {_DROPPED}"
        if size == 1 and launch.supervised
        else "Start it with make sweep, or by hand: "
        f"horovodrun -np {expected} python -m train CONFIG"
    )
    raise WorldError(
        f"found a world of {size} rank{'s' * (size != 1)} (launcher: {launch.launcher}), expected "
        f"{expected} as the config says. {todo}"
    )


def own_gpus(local_rank: int, local_size: int, count: int) -> tuple[tuple[str, ...], Claims[str]]:
    """Make ``count`` GPUs visible to this process, which no other run holds if there are as many:
    their models, if any, and its claims. Raises WorldError: there are GPUs, but fewer."""
    import tensorflow as tf  # noqa: PLC0415

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return (), Claims()
    if count > len(gpus):
        raise WorldError(
            f"framework mirrored needs {count} GPUs for one process, found {len(gpus)}: ask the "
            "site for as many on one node, or use fewer gpus"
        )
    # sites that bind one GPU per task show a single device to every rank
    chosen = [(local_rank * count + n) % len(gpus) for n in range(count)]
    held, ids = Claims[str](others=len(gpus) < local_size * count), gpu_ids()
    # TensorFlow leaves out GPUs that are too weak for it, and does not say which
    if len(ids) == len(gpus):
        held = claim([ids[n] for n in chosen], ids[local_size * count :])
        chosen = [ids.index(one) for one in held.own]
    own = [gpus[n] for n in chosen]
    tf.config.set_visible_devices(own, "GPU")
    for gpu in own:
        tf.config.experimental.set_memory_growth(gpu, True)
    details = tf.config.experimental.get_device_details
    return tuple(str(details(gpu).get("device_name", gpu)) for gpu in own), held
