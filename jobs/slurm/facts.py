"""What a cluster says of itself: the answers of sinfo and scontrol as values. Nothing runs here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from train.errors import ConfigError

#: Runs one of Slurm's programs and returns what it printed.
Ask = Callable[[Sequence[str]], str]

# --exact: without it, nodes that differ are shown as one with its smallest numbers and a plus
SINFO = ("sinfo", "--noheader", "--all", "--exact", "--format=%P|%a|%l|%s|%D|%T|%c|%m|%G|%f")
SCONTROL = ("scontrol", "show", "config")
MPI_LIST = ("srun", "--mpi=list")
_FIELDS = 10
_OUT_OF_USE = ("down", "drain", "fail", "error", "unknown", "inval", "future", "power")


def out_of_use(state: str) -> bool:
    """Whether nodes in this state, as sinfo writes it, take no job."""
    return state.startswith(_OUT_OF_USE)


@dataclass(frozen=True)
class Nodes:
    """Equal nodes of one partition in one state: a line of sinfo."""

    partition: str
    default: bool  # the partition is the cluster's default one
    up: bool
    time_limit_min: float  # of the partition; infinity where there is none
    job_nodes: float  # most nodes of one job in the partition
    count: int
    state: str
    cpus: int  # of each node, as are the rest
    memory_mb: int
    gpus: tuple[tuple[str, int], ...]  # type ('' where it has none) and how many
    features: tuple[str, ...]

    @property
    def usable(self) -> bool:
        return not out_of_use(self.state)

    def gpus_of(self, kind: str | None) -> int:
        """GPUs of one type, or of any."""
        return sum(count for name, count in self.gpus if kind in (None, name))


def read_sinfo(text: str) -> tuple[Nodes, ...]:
    """The nodes in ``SINFO``'s answer.

    Raises:
        ConfigError: no line, or one of another form.
    """
    nodes = tuple(_nodes(line) for line in text.splitlines() if line.strip())
    if not nodes:
        raise ConfigError("sinfo names no partition: is this cluster set up?")
    return nodes


def read_config(text: str) -> dict[str, str]:
    """Settings by name, from ``SCONTROL``'s answer."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, sign, value in pairs if sign}


def max_array_size(config: dict[str, str]) -> int | None:
    """Most elements of one array; None where the cluster does not say."""
    value = config.get("MaxArraySize", "")
    return int(value) if value.isdigit() else None


def cluster_name(config: dict[str, str]) -> str | None:
    return config.get("ClusterName") or None


def partitions(nodes: Iterable[Nodes]) -> list[str]:
    return list(dict.fromkeys(group.partition for group in nodes))


def minutes(text: str) -> float:
    """A time limit as Slurm writes it: d-hh:mm:ss, hh:mm:ss, mm:ss or a word for none."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if found is None:
        return math.inf
    days, hours, mins, seconds = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + mins + seconds / 60


def _nodes(line: str) -> Nodes:
    parts = line.strip().split("|", _FIELDS - 1)
    try:
        name, up, limit, size, count, state, cpus, memory, gres, features = parts
        return Nodes(
            partition=name.removesuffix("*"),
            default=name.endswith("*"),
            up=up == "up",
            time_limit_min=minutes(limit),
            job_nodes=_most(size),
            count=int(count),
            state=re.sub(r"[^a-z_].*", "", state.lower()),
            cpus=int(cpus),
            memory_mb=int(memory),
            gpus=tuple(_gpus(gres)),
            features=tuple(re.findall(r"[^,()|&]+", features)) if features != "(null)" else (),
        )
    except ValueError as error:
        raise ConfigError(f"sinfo answered in an unknown form: {line!r}") from error


def _most(size: str) -> float:
    last = size.rpartition("-")[2]
    return int(last) if last.isdigit() else math.inf


def _gpus(gres: str) -> Iterable[tuple[str, int]]:
    """From e.g. ``gpu:a100:8(S:0-1),nvme:2``."""
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = item.split(":")
        if name == "gpu":
            count = int(rest.pop()) if rest and rest[-1].isdigit() else 1
            yield (rest[0] if rest else "", count)
