"""What this process was started into and for: its world, by the environment, and its task. Loads no
TensorFlow and no Horovod: cores must be chosen before either creates its threads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from train.errors import ConfigError

if TYPE_CHECKING:
    from train.record.run import Attempt

Launcher = Literal["horoscale", "horovodrun", "mpirun", "srun", "none"]

#: launcher -> what its variables begin with; those of the node's number and of the number of nodes
_LAUNCHERS: dict[Launcher, tuple[str, str, str]] = {
    "horoscale": ("HOROSCALE_", "NODE", "NODES"),
    "horovodrun": ("HOROVOD_", "CROSS_RANK", "CROSS_SIZE"),
    "mpirun": ("OMPI_COMM_WORLD_", "", ""),
}
#: Any of them: MPI can find its peers.
_WIRING = ("PMIX_RANK", "PMI_RANK", "PMI_FD")


@dataclass(frozen=True)
class Launch:
    """What the launcher says about this process; Horovod's own word is asserted against it."""

    launcher: Launcher
    rank: int
    size: int
    local_rank: int
    local_size: int
    cores: tuple[int, ...] = ()  # given by the launcher; (): choose from the mask
    rendezvous: Path | None = None  # file in which rank 0 publishes its address
    supervisor: int | None = None  # process whose end must end this one
    node: int = 0
    nodes: int = 1
    cores_asked: int = 0  # for each rank, of Slurm; 0: none
    wired: bool = True  # MPI can find its peers
    supervised: bool = False  # a supervisor, perhaps on another host, keeps the record
    # to be taken where another run holds ``cores``; None: these are not claimed
    spare: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Task:
    """One start of a cell: where and how; nothing of it changes a result."""

    out: Path  # folder of the record, the checkpoint and the logs
    data: Path = Path()  # folder with the raw data sets
    store: Path | None = None  # folder of their prepared forms; None: in ``data``
    model_file: Path | None = None  # of a network, if the config names one of a file
    attempt: int = 1  # which start of the cell it is
    earlier: tuple[Attempt, ...] = ()  # of its record
    resume: bool = False  # go on from the checkpoint in ``out``
    force: bool = False  # replace a good record
    stop_at: float | None = None  # seconds since 1970 at which the ranks must be gone
    started_at: datetime = field(default_factory=partial(datetime.now, timezone.utc))


def read_launch(environment: Mapping[str, str], *, supervised: bool = False) -> Launch:
    """Find out who started this process. supervised: the command line says that a supervisor keeps
    the record, also if a container dropped the environment or it is on another host."""
    launch = _read_launcher(environment)
    if not 0 <= launch.rank < launch.size:
        raise ConfigError(f"the launcher says rank {launch.rank} of a world of {launch.size}")
    meeting = environment.get("HOROSCALE_RENDEZVOUS")
    local = "HOROSCALE_SUPERVISOR" in environment
    supervisor = _integer(environment, "HOROSCALE_SUPERVISOR") if local else None
    given = environment if launch.launcher != "srun" else {}  # one value for all tasks of a step
    return replace(
        launch,
        cores=_cores(given, "HOROSCALE_CORES"),
        rendezvous=Path(meeting) if meeting else None,
        supervisor=None if supervised else supervisor,
        supervised=supervised or local,
        spare=_cores(given, "HOROSCALE_SPARE") if "HOROSCALE_SPARE" in given else None,
    )


def _read_launcher(environment: Mapping[str, str]) -> Launch:
    for launcher, (prefix, node, nodes) in _LAUNCHERS.items():
        if f"{prefix}RANK" in environment:
            names = (f"{prefix}{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
            rank, size, local_rank, local_size = (_integer(environment, name) for name in names)
            if f"{prefix}{nodes}" in environment:
                place = tuple(_integer(environment, prefix + name) for name in (node, nodes))
            else:  # nodes of mpirun are taken as equal
                place = 0, 1 if launcher == "horoscale" else -(-size // max(1, local_size))
            return Launch(
                launcher, rank, size, local_rank, local_size, node=place[0], nodes=place[1]
            )
    # a batch script and a shell of salloc have SLURM_PROCID, too: only steps count their tasks
    if "SLURM_STEP_NUM_TASKS" in environment and "SLURM_PROCID" in environment:
        return _read_step(environment)
    return Launch("none", 0, 1, 0, 1)


def _read_step(environment: Mapping[str, str]) -> Launch:
    node, size = (_integer(environment, f"SLURM_{name}") for name in ("NODEID", "STEP_NUM_TASKS"))
    text = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    runs = re.findall(r"(\d+)(?:\(x(\d+)\))?(?:,|$)", text)  # 2(x3),1 is 2, 2, 2, 1
    tasks = [int(count) for count, times in runs for _ in range(int(times or 1))]
    if not 0 <= node < len(tasks) or sum(tasks) != size:
        raise ConfigError(
            f"Slurm says node {node}, {size} tasks and SLURM_STEP_TASKS_PER_NODE={text!r}, which "
            "do not go together: start the ranks through make sweep or a plain srun"
        )
    asked = environment.get("SLURM_CPUS_PER_TASK", "")
    return Launch(
        "srun", _integer(environment, "SLURM_PROCID"), size,
        _integer(environment, "SLURM_LOCALID"), tasks[node],
        node=node,
        nodes=len(tasks),
        cores_asked=int(asked) if asked.isdecimal() else 0,
        wired=any(name in environment for name in _WIRING),
    )  # fmt: skip


def _integer(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"the launcher's variable {name} is {environment.get(name)!r}, expected an integer: "
            "start the ranks through make sweep, srun, horovodrun or mpirun"
        ) from error


def _cores(environment: Mapping[str, str], name: str) -> tuple[int, ...]:
    given = environment.get(name, "")
    try:
        return tuple(int(core) for core in given.split(",") if given)
    except ValueError as error:
        raise ConfigError(f"{name} is {given!r}, expected core numbers like 0,1") from error
