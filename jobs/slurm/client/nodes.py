"""What nodes there are, by sinfo and scontrol; NODES=: how many of them, or which ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from jobs.config.site import Site
from jobs.config.yamlfile import nearest
from jobs.slurm.client.run import Ask, SlurmError, asker
from train.errors import ConfigError

# --exact: without it, nodes that differ are shown as one with its smallest numbers and a plus
SINFO = ("sinfo", "--noheader", "--all", "--exact", "--format=%P|%a|%l|%s|%D|%T|%c|%m|%G|%f")
STATES = ("sinfo", "--noheader", "--Node", "--format=%N %T")
TOPOLOGY = ("scontrol", "show", "topology")
#: The beginnings of states, as sinfo writes them, in which nodes take no job.
_OUT_OF_USE = ("down", "drain", "fail", "error", "unknown", "inval", "future", "power")
#: For others than the user who reserved them.
_RESERVED = ("maint", "reserved")


def _is_out_of_use(state: str, others: tuple[str, ...] = ()) -> bool:
    """Whether nodes in this state take no job; with a * at its end they do not respond."""
    return state.startswith((*_OUT_OF_USE, *others)) or state.endswith("*")


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

    def __str__(self) -> str:
        """In words, as 4 nodes with 2 GPUs a100, 64 CPUs, 500 GB memory, features ib."""
        gpus = [f"{count} GPUs {kind}".strip() for kind, count in self.gpus] or ["no GPU"]
        parts = [*gpus, f"{self.cpus} CPUs", f"{self.memory_mb / 1024:.4g} GB memory"]
        parts += [f"features {','.join(self.features)}"] if self.features else []
        return f"{counted(self.count)} with {', '.join(parts)}"

    @property
    def usable(self) -> bool:
        return not _is_out_of_use(self.state)

    def gpus_of(self, kind: str | None) -> int:
        """GPUs of one type, or of any."""
        return sum(count for name, count in self.gpus if kind in (None, name))


def counted(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def read_sinfo(text: str) -> tuple[Nodes, ...]:
    """The nodes in ``SINFO``'s answer.

    Raises:
        ConfigError: no line, or one of another form.
    """
    nodes = tuple(_nodes_of(line) for line in text.splitlines() if line.strip())
    if not nodes:
        raise ConfigError("sinfo names no partition: is this cluster set up?")
    return nodes


def _nodes_of(line: str) -> Nodes:
    try:
        name, up, limit, size, count, state, cpus, memory, gres, features = line.split("|", 9)
        return Nodes(
            partition=name.strip().removesuffix("*"),
            default=name.endswith("*"),
            up=up == "up",
            time_limit_min=limit_min(limit),
            job_nodes=_most(size),
            count=int(count),
            state=re.sub(r"[^a-z_].*", "", state.lower()),
            cpus=int(cpus),
            memory_mb=int(memory),
            gpus=tuple(_gpus(gres)),
            features=tuple(re.findall(r"[^,()|&\s]+", features.replace("(null)", ""))),
        )
    except ValueError as error:
        raise ConfigError(f"sinfo answered in an unknown form: {line!r}") from error


def limit_min(text: str) -> float:
    """Minutes of a time limit as Slurm writes it: [d-][hh:]mm:ss, or a word for none."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if found is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + minutes + seconds / 60


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


def partitions(nodes: Iterable[Nodes]) -> list[str]:
    return list(dict.fromkeys(group.partition for group in nodes))


def max_array_size(config: dict[str, str]) -> int | None:
    """Most elements of one array; None where the cluster does not say."""
    value = config.get("MaxArraySize", "")
    return int(value) if value.isdigit() else None


def node_states(ask: Ask, partition: str | None = None) -> dict[str, str]:
    """Node -> state of a partition's nodes, or of all."""
    which = "--all" if partition is None else f"--partition={partition}"  # sinfo refuses both
    pairs = (line.split() for line in ask([*STATES, which]).splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def usable_nodes(site: Site) -> set[str]:
    """Nodes of the site's partition that take jobs; none where Slurm does not say."""
    with suppress(SlurmError):
        states = node_states(asker(site.slurm_conf, patience_s=0), site.partition).items()
        return {node for node, state in states if not _is_out_of_use(state)}
    return set()


class Wanted(NamedTuple):
    """The nodes that NODES= asks for."""

    number: int
    names: str | None = None  # with commas; None: any


def read_nodes(text: str, ask: Ask) -> Wanted:
    """``4``, or names in Slurm's form: ``node3,node[5-8]``.

    Raises:
        ConfigError: neither, or nodes that the cluster does not have.
        SlurmError: Slurm does not answer.
    """
    with suppress(ValueError):
        return Wanted(int(text))
    expected = "expected a number, or names like node3,node[5-8]"
    try:
        names = hostnames(text, ask)
    except SlurmError as error:
        if error.passing:
            raise
        raise ConfigError(f"NODES={text}: {expected}; scontrol says: {error.came}") from error
    there = node_states(ask)
    for name in names:
        if name not in there:
            near = nearest(name, sorted(there))
            hint = f"did you mean {near!r}? " if near else ""
            raise ConfigError(
                f"NODES={text}: unknown node {name!r}; {hint}sinfo -N lists all {len(there)}"
            )
    if not names:
        raise ConfigError(f"NODES={text!r}: {expected}")
    if len(set(names)) < len(names):
        raise ConfigError(f"NODES={text}: a node is named twice; expected each once")
    return Wanted(len(names), ",".join(names))


def hostnames(text: str, ask: Ask) -> list[str]:
    """Slurm's short form, as node[1-3], one name after another.

    Raises:
        SlurmError: it is not of that form, or Slurm does not answer.
    """
    return ask(("scontrol", "show", "hostnames", text)).split()


def check_in_use(
    wanted: Wanted, partition: str | None, ask: Ask, reservation: str | None = None
) -> None:
    """A sweep waits for nodes that are out of use; who measures an interconnect wants to know now.

    ``reservation``: that the job runs in; reserved nodes may be its own.

    Raises:
        ConfigError: named nodes, or too many others, are down, drained or reserved.
        SlurmError: Slurm does not answer.
    """
    states = node_states(ask, partition)
    reserved = () if reservation else _RESERVED
    out = {name: state for name, state in states.items() if _is_out_of_use(state, reserved)}
    if wanted.names is not None:
        bad = [f"{name} is {out[name]}" for name in wanted.names.split(",") if name in out]
        if bad:
            raise ConfigError(
                f"NODES={wanted.names}: {', '.join(bad)}; nothing was submitted. Name others, or "
                "bring them back (sinfo -R shows why)"
            )
    elif len(states) - len(out) < wanted.number:
        listed = ", ".join(f"{name} {state}" for name, state in sorted(out.items())[:8])
        raise ConfigError(
            f"NODES={wanted.number}: {len(states) - len(out)} of {len(states)} nodes are in use "
            f"by Slurm, the others are out of use ({listed}); nothing was submitted. Ask for "
            "fewer, or bring them back (sinfo -R shows why)"
        )


def leaves(ask: Ask) -> dict[str, str]:
    """Node -> leaf switch; empty where Slurm knows no switches, as at most sites.

    Raises:
        SlurmError: Slurm does not answer.
    """
    try:
        text = ask(TOPOLOGY)
    except SlurmError as error:
        if error.passing:
            raise
        return {}  # another topology plugin than tree
    switches = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in text.splitlines()]
    return {
        node: switch["SwitchName"]
        for switch in switches
        if switch.get("Level") == "0" and switch.keys() >= {"SwitchName", "Nodes"}
        for node in hostnames(switch["Nodes"], ask)
    }
