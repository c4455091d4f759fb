"""The world that this process was started into, read from the environment once, as a value.

Nothing here loads TensorFlow or Horovod: cores must be chosen before either creates its threads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from train.distributed.quota import Quota, usable_cores
from train.errors import ConfigError

Launcher = Literal["horoscale", "horovodrun", "mpirun", "srun", "none"]

#: launcher -> names of its variables: rank, size, local rank, local size
_VARIABLES: dict[Launcher, tuple[str, str, str, str]] = {
    "horoscale": (
        "HOROSCALE_RANK", "HOROSCALE_SIZE", "HOROSCALE_LOCAL_RANK", "HOROSCALE_LOCAL_SIZE",
    ),
    "horovodrun": (
        "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
    ),
    "mpirun": (
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
}  # fmt: skip
#: launcher -> names of the node's number and of the number of nodes, where it tells them
_NODES: dict[Launcher, tuple[str, str]] = {
    "horoscale": ("HOROSCALE_NODE", "HOROSCALE_NODES"),
    "horovodrun": ("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"),
}
#: Any of them: the launcher offers the wiring that MPI needs to find its peers.
_WIRING = ("PMIX_RANK", "PMI_RANK", "PMI_FD")


@dataclass(frozen=True)
class Launch:
    """What the launcher says about this process; Horovod's own word is asserted against it."""

    launcher: Launcher
    rank: int
    size: int
    local_rank: int
    local_size: int
    cores: tuple[int, ...] | None  # given by the launcher; None: choose from the affinity mask
    rendezvous: Path | None  # file through which rank 0 tells the others where to meet
    supervisor: int | None  # process whose end must end this one
    node: int = 0
    nodes: int = 1
    cores_asked: int | None = None  # for each rank, of Slurm; None: not told
    wired: bool = True  # MPI can find its peers
    remote: bool = False  # a supervisor, perhaps on another host, keeps the record
    # to be taken where another run holds ``cores``; None: the launcher gave none, not even ()
    spare: tuple[int, ...] | None = None

    @property
    def supervised(self) -> bool:
        """Whether somebody else settles what becomes of this start."""
        return self.remote or self.supervisor is not None


def read_launch(environment: Mapping[str, str], *, supervised: bool = False) -> Launch:
    """Find out who started this process.

    Args:
        supervised: the command line says that a supervisor keeps the record. It holds also where
            a container dropped the whole environment, and the supervisor may be on another host.

    Raises:
        ConfigError: a launcher's variables are there in part only, or are not what they should be.
    """
    meeting = environment.get("HOROSCALE_RENDEZVOUS")
    rendezvous = Path(meeting) if meeting else None
    for launcher, names in _VARIABLES.items():
        if names[0] in environment:
            rank, size, local_rank, local_size = (_integer(environment, name) for name in names)
            _check_rank(rank, size)
            node, nodes = _node(environment, launcher, size, local_size)
            return Launch(
                launcher, rank, size, local_rank, local_size,
                cores=_cores(environment, "HOROSCALE_CORES") or None,
                rendezvous=rendezvous,
                supervisor=_integer(environment, "HOROSCALE_SUPERVISOR")
                if environment.get("HOROSCALE_SUPERVISOR") and not supervised
                else None,
                node=node,
                nodes=nodes,
                remote=supervised,
                spare=_cores(environment, "HOROSCALE_SPARE"),
            )  # fmt: skip
    # a batch script and a shell of salloc have SLURM_PROCID, too: only steps count their tasks
    if "SLURM_STEP_NUM_TASKS" in environment and "SLURM_PROCID" in environment:
        return _read_step(environment, rendezvous, supervised=supervised)
    return Launch(
        "none", 0, 1, 0, 1, cores=None, rendezvous=None, supervisor=None, remote=supervised
    )


def _read_step(
    environment: Mapping[str, str], rendezvous: Path | None, *, supervised: bool
) -> Launch:
    """A task of a step of Slurm. ``HOROSCALE_CORES`` and the like, one for all, mean nothing."""
    rank = _integer(environment, "SLURM_PROCID")
    size = _integer(environment, "SLURM_STEP_NUM_TASKS")
    _check_rank(rank, size)
    node = _integer(environment, "SLURM_NODEID")
    tasks = tasks_per_node(environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    if not 0 <= node < len(tasks) or sum(tasks) != size:
        raise ConfigError(
            f"Slurm says node {node}, {size} tasks and SLURM_STEP_TASKS_PER_NODE="
            f"{environment.get('SLURM_STEP_TASKS_PER_NODE')!r}, which do not go together: start "
            "the ranks through make sweep or a plain srun"
        )
    asked = environment.get("SLURM_CPUS_PER_TASK")
    return Launch(
        "srun", rank, size, _integer(environment, "SLURM_LOCALID"), tasks[node],
        cores=None,
        rendezvous=rendezvous,
        supervisor=None,
        node=node,
        nodes=len(tasks),
        cores_asked=int(asked) if asked and asked.isdecimal() and int(asked) > 0 else None,
        wired=any(name in environment for name in _WIRING),
        remote=supervised,
    )  # fmt: skip


def tasks_per_node(text: str) -> tuple[int, ...]:
    """Slurm's short form, one number per node: ``2(x3),1`` is 2, 2, 2, 1.

    Raises:
        ConfigError: it is not of that form.
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise ConfigError(
                f"SLURM_STEP_TASKS_PER_NODE is {text!r}, expected the form 2(x3),1: "
                "start the ranks through make sweep, srun, horovodrun or mpirun"
            )
        found += [int(match[1])] * int(match[2] or 1)
    return tuple(found)


def _check_rank(rank: int, size: int) -> None:
    if not 0 <= rank < size:
        raise ConfigError(f"the launcher says rank {rank} of a world of {size}")


def _node(
    environment: Mapping[str, str], launcher: Launcher, size: int, local_size: int
) -> tuple[int, int]:
    """Number of this node and of all nodes; mpirun tells neither, its nodes are taken as equal."""
    names = _NODES.get(launcher)
    if names and names[1] in environment:
        node, nodes = (_integer(environment, name) for name in names)
        return node, nodes
    return 0, 1 if launcher == "horoscale" else -(-size // max(1, local_size))


def _integer(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"the launcher's variable {name} is {environment.get(name)!r}, expected an integer: "
            "start the ranks through make sweep, srun, horovodrun or mpirun"
        ) from error


def _cores(environment: Mapping[str, str], name: str) -> tuple[int, ...] | None:
    given = environment.get(name)
    if given is None:
        return None
    try:
        return tuple(int(core) for core in given.split(",") if given)
    except ValueError as error:
        raise ConfigError(f"{name} is {given!r}, expected core numbers like 0,1") from error


def own_cores(
    mask: Collection[int],
    launch: Launch,
    machine: int | None = None,
    quotas: tuple[Quota, ...] = (),
) -> tuple[int, ...]:
    """Cores of this rank: those given, else its equal share of the mask that local ranks share.

    Under Slurm the mask may be this rank's alone already (sites bind tasks or not), and where it is
    not, a rank takes no more cores than were asked for it: other jobs may run on the node.
    With more ranks than cores, ranks share single cores in turn (``oversubscribed`` in records).
    Of a shared mask they take no more cores than the CPU quota gives, but one each at least.

    Args:
        machine: number of cores of this machine; a mask of all of them is nobody's own.
    """
    if launch.cores is not None:
        return launch.cores
    cores = sorted(mask)
    # counted over all nodes, so that nodes that are one machine take different cores, too
    number = launch.node * launch.local_size + launch.local_rank
    if asked := launch.cores_asked:
        if len(cores) < launch.local_size * asked and len(cores) != machine:
            return tuple(cores)
        if slots := len(cores) // asked * (launch.local_size * asked <= len(cores)):
            start = number % slots * asked
            return tuple(cores[start : start + asked])
    share = len(cores) // launch.local_size
    if share == 0:
        return (cores[number % len(cores)],)
    start = launch.local_rank * share
    within = max(1, usable_cores(len(cores), quotas) // launch.local_size)
    return tuple(cores[start : start + min(share, within)])


def pin(cores: tuple[int, ...]) -> None:
    """Bind this process to its cores and size the thread pools that read the environment.

    Two pinned one-core ranks process about 1.5 times the images of two that share both cores.

    Raises:
        ConfigError: this machine has no such cores, or they are not for this process.
    """
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        told = ",".join(map(str, cores))
        mine = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise ConfigError(
            f"cannot run on cores {told}: {error.strerror}; this process may use {mine}"
        ) from error
    os.environ["OMP_NUM_THREADS"] = str(len(cores))
