"""What a cluster says of itself, and whether it has what a site file and a sweep ask for.

Slurm itself takes most impossible jobs without a word and lets them wait for ever.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from jobs.config.site import Site
from jobs.config.yamlfile import unknown
from jobs.slurm.arrays import NodeLayout
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
    nodes = tuple(_of_line(line) for line in text.splitlines() if line.strip())
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


def _of_line(line: str) -> Nodes:
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


def check_site(
    site: Site, shapes: Iterable[NodeLayout], ask: Ask, *, minutes: int | None = None
) -> tuple[str, ...]:
    """Two questions to Slurm, whatever the size of the sweep. Returns what is worth saying.

    ``minutes``: the longest time limit of a job; default: the site's for one cell.

    Raises:
        ConfigError: all that cannot work, with what the cluster has.
    """
    nodes = read_sinfo(ask(SINFO))
    size = max_array_size(read_config(ask(SCONTROL)))
    wanted = sorted(set(shapes), key=lambda shape: (shape.nodes, shape.ranks_per_node))
    longest = site.time_min if minutes is None else minutes
    wrong = [*_partition_problems(site, nodes)]
    if not wrong:
        offered = _offered(site, nodes)
        wrong += _time_problems(site, offered, longest)
        wrong += [text for shape in wanted for text in _shape_problems(site, shape, offered)]
    if size is not None and site.array_limit > size:
        wrong.append(
            f"array_limit: {site.array_limit} is more than the elements that the cluster takes "
            f"in one array: set array_limit: {size} (MaxArraySize)"
        )
    if wrong:
        raise ConfigError(
            "\n  ".join(["the cluster cannot run this; nothing was submitted:", *wrong])
        )
    return tuple(_remarks(site, wanted, _offered(site, nodes)))


def _names(site: Site, nodes: Sequence[Nodes]) -> list[str]:
    """Partitions that jobs may go to: a list with commas, or the cluster's default."""
    if site.partition is not None:
        return site.partition.split(",")
    return list(dict.fromkeys(group.partition for group in nodes if group.default))


def _offered(site: Site, nodes: Sequence[Nodes]) -> list[Nodes]:
    names = _names(site, nodes)
    return [group for group in nodes if group.partition in names]


def _partition_problems(site: Site, nodes: Sequence[Nodes]) -> Iterator[str]:
    names, known = _names(site, nodes), partitions(nodes)
    if not names:
        yield f"the cluster has no default partition: set partition: to one of {', '.join(known)}"
    for name in names:
        if name not in known:
            yield unknown("partition", name, known)
        elif not any(group.up for group in nodes if group.partition == name):
            yield f"partition {name} is closed (sinfo says it is not up)"


def _time_problems(site: Site, offered: Sequence[Nodes], longest: int) -> Iterator[str]:
    most = max(group.time_limit_min for group in offered)
    if longest > most:
        packed = "" if longest == site.time_min else f" (time_min: {site.time_min} for each cell)"
        yield (
            f"jobs of {longest:,} minutes{packed} are longer than partition "
            f"{_listed(offered)} allows: {most:,.0f} minutes"
        )


def _shape_problems(site: Site, shape: NodeLayout, offered: Sequence[Nodes]) -> Iterator[str]:
    most = max(group.job_nodes for group in offered)
    where = f"partition {_listed(offered)}"
    if shape.nodes > most:
        yield f"{shape}: jobs in {where} may have {most:.0f} nodes"
    gpus = sum(group.count * group.gpus_of(site.gpu_type) for group in _distinct(offered))
    if site.gpus != "none" and shape.size > gpus:
        yield f"{shape}: needs {shape.size} {_kind(site)}, and {where} has {gpus} in all"
        return
    fits = _distinct(offered)
    have = sum(group.count for group in fits)
    if shape.nodes > have:
        yield f"{shape}: {where} has {_nodes(have)}"
        return
    for what, enough, has in _needs(site, shape):
        left = [group for group in fits if enough(group)]
        if sum(group.count for group in left) < shape.nodes:
            found = ", ".join(f"{_nodes(group.count)} with {has(group)}" for group in fits)
            yield f"{shape}: needs {_nodes(shape.nodes)} with {what}; {where} has {found}"
            return
        fits = left


def _needs(
    site: Site, shape: NodeLayout
) -> Iterator[tuple[str, Callable[[Nodes], bool], Callable[[Nodes], str]]]:
    """Each thing asked of a node: in words, the test, and what a node has of it."""
    ranks = shape.ranks_per_node
    if site.constraint is not None and re.fullmatch(r"[\w.-]+", site.constraint):
        # a single word; what a formula of features selects is for Slurm to say
        word = site.constraint
        yield (
            f"the feature {word}",
            lambda group: word in group.features,
            lambda group: "features " + (",".join(group.features) or "(none)"),
        )
    if site.gpus != "none":
        yield (
            f"{ranks} {_kind(site)}",
            lambda group: group.gpus_of(site.gpu_type) >= ranks,
            _gpus_of,
        )
    cpus = ranks * site.cpus_per_rank
    yield (
        f"{cpus} CPUs ({ranks} x {site.cpus_per_rank} of cpus_per_rank)",
        lambda group: group.cpus >= cpus,
        lambda group: f"{group.cpus} CPUs",
    )
    if site.mem_per_rank_gb is not None:
        memory = ranks * site.mem_per_rank_gb
        yield (
            f"{memory:g} GB memory ({ranks} x {site.mem_per_rank_gb:g} of mem_per_rank_gb)",
            lambda group: group.memory_mb >= memory * 1024,
            lambda group: f"{group.memory_mb / 1024:.4g} GB",
        )


def _remarks(site: Site, shapes: Sequence[NodeLayout], offered: Sequence[Nodes]) -> Iterator[str]:
    groups = _distinct(offered)
    whole = sum(group.count for group in groups)
    usable = sum(group.count for group in groups if group.usable)
    if usable < whole:
        waiting = [str(shape) for shape in shapes if shape.nodes > usable]
        text = (
            f"{whole - usable} of {whole} nodes of partition {_listed(offered)} are out of use now"
        )
        yield text + (f": jobs with {', '.join(waiting)} will wait for them" if waiting else "")
    for shape in shapes:
        if site.exclusive and shape.ranks_per_node < site.ranks_per_node:
            idle = (site.ranks_per_node - shape.ranks_per_node) * shape.nodes
            yield f"exclusive: {shape} leaves {idle} {_kind(site)} idle in each job"


def _distinct(offered: Sequence[Nodes]) -> list[Nodes]:
    """Of several partitions the largest only: partitions may share their nodes."""
    sizes = {
        name: sum(group.count for group in offered if group.partition == name)
        for name in partitions(offered)
    }
    largest = max(sizes, key=lambda name: sizes[name])
    return [group for group in offered if group.partition == largest]


def _kind(site: Site) -> str:
    if site.gpus == "none":
        return "ranks"
    return "GPUs" if site.gpu_type is None else f"GPUs of type {site.gpu_type}"


def _gpus_of(group: Nodes) -> str:
    return ", ".join(f"{n} GPUs {kind}".strip() for kind, n in group.gpus) or "no GPU"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _listed(offered: Sequence[Nodes]) -> str:
    return ",".join(partitions(offered))
