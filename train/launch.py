"""The world that this process was started into, read from the environment once, as a value.

Nothing here loads TensorFlow or Horovod: cores must be chosen before either creates its threads.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from train.config import ConfigError

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


def read_launch(environment: Mapping[str, str]) -> Launch:
    """Find out who started this process.

    Raises:
        ConfigError: a launcher's variables are there in part only, or are not what they should be.
    """
    for launcher, names in _VARIABLES.items():
        if names[0] in environment:
            rank, size, local_rank, local_size = (_integer(environment, name) for name in names)
            if not 0 <= rank < size:
                raise ConfigError(f"the launcher says rank {rank} of a world of {size}")
            meeting = environment.get("HOROSCALE_RENDEZVOUS")
            return Launch(
                launcher, rank, size, local_rank, local_size,
                cores=_cores(environment),
                rendezvous=Path(meeting) if meeting else None,
                supervisor=_integer(environment, "HOROSCALE_SUPERVISOR")
                if environment.get("HOROSCALE_SUPERVISOR")
                else None,
            )  # fmt: skip
    return Launch("none", 0, 1, 0, 1, cores=None, rendezvous=None, supervisor=None)


def _integer(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"the launcher's variable {name} is {environment.get(name)!r}, expected an integer: "
            "start the ranks through make sweep, horovodrun or mpirun"
        ) from error


def _cores(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    given = environment.get("HOROSCALE_CORES")
    if not given:
        return None
    try:
        return tuple(int(core) for core in given.split(","))
    except ValueError as error:
        raise ConfigError(
            f"HOROSCALE_CORES is {given!r}, expected core numbers like 0,1"
        ) from error


def own_cores(mask: Collection[int], launch: Launch) -> tuple[int, ...]:
    """Cores of this rank: those given, else its equal share of the mask that local ranks share.

    With more ranks than cores, ranks share single cores in turn (``oversubscribed`` in records).
    """
    if launch.cores is not None:
        return launch.cores
    cores = sorted(mask)
    share = len(cores) // launch.local_size
    if share == 0:
        return (cores[launch.local_rank % len(cores)],)
    start = launch.local_rank * share
    return tuple(cores[start : start + share])


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
