"""What nodes there are, by sinfo and scontrol; NODES=: how many of them, or which ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from jobs.config.site import Site
from jobs.messages import seconds_of
from jobs.slurm.client.run import Ask, SlurmError
from train.errors import ConfigError

# --exact: without it, nodes that differ are shown as one with its smallest numbers and a plus
SINFO = ("sinfo", "--noheader", "--all", "--exact", "--format=%P|%a|%l|%s|%D|%T|%c|%m|%G|%f")
STATES = ("sinfo", "--noheader", "--Node", "--format=%N|%T")
TOPOLOGY = ("scontrol", "show", "topology")
#: States, as sinfo writes them, of nodes that take no job; those with a * do not respond.
_OUT_OF_USE = re.compile(r"down|drain|fail|error|unknown|inval|future|power|.*\*$")
#: For others than the user who reserved them.
_RESERVED = re.compile("maint|reserved")


@dataclass(frozen=True)
class Nodes:
    """Equal nodes of one partition in one state: a line of sinfo."""

    partition: str
    default: bool  # the partition is the cluster's default one
    open: bool  # the partition takes jobs: while it is down, as for a night, they wait
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
        return _OUT_OF_USE.match(self.state) is None


def read_sinfo(text: str) -> tuple[Nodes, ...]:
    """The nodes in ``SINFO``'s answer; lines of another form are left out.

    Raises:
        ConfigError: no line has the form.
    """
    nodes = list[Nodes]()
    for line in text.splitlines():
        with suppress(ValueError):
            nodes.append(_nodes_of(line))
    if not nodes and text.strip():
        raise ConfigError(f"sinfo answered in an unknown form: {text[:200]!r}")
    return tuple(nodes)


def _nodes_of(line: str) -> Nodes:
    """Raises ValueError where it has another form."""
    name, available, limit, size, count, state, cpus, memory, gres, features, *_ = line.split("|")
    limit_s, most = seconds_of(limit), size.rpartition("-")[2]
    return Nodes(
        partition=name.strip().removesuffix("*"),
        default=name.endswith("*"),
        open=available in ("up", "down"),
        time_limit_min=math.inf if limit_s is None else limit_s / 60,
        job_nodes=int(most) if most.isdigit() else math.inf,
        count=int(count),
        state=state,
        cpus=int(cpus.rstrip("+")),  # of nodes that differ, the least
        memory_mb=int(memory.rstrip("+")),
        gpus=tuple(_gpus(gres)),
        features=tuple(re.findall(r"[^,()|&\s]+", features.replace("(null)", ""))),
    )


def _gpus(gres: str) -> Iterable[tuple[str, int]]:
    """From e.g. ``gpu:a100:8(S:0-1),nvme:2``."""
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = item.split(":")
        if name == "gpu":
            count = int(rest.pop()) if rest and rest[-1].isdigit() else 1
            yield (rest[0] if rest else "", count)


def partitions(nodes: Iterable[Nodes]) -> list[str]:
    return list(dict.fromkeys(group.partition for group in nodes))


def _node_states(ask: Ask, partition: str | None) -> dict[str, str]:
    """Node -> state of a partition's nodes, or of all."""
    which = "--all" if partition is None else f"--partition={partition}"  # sinfo refuses both
    # a line of another form is the name of a cluster (CLUSTER: big), or of a site's greeting
    return dict(re.findall(r"(?m)^(\S+)\|(\S+)$", ask([*STATES, which])))


class Wanted(NamedTuple):
    """The nodes that NODES= asks for."""

    number: int
    names: tuple[str, ...] = ()  # none: any nodes


def read_nodes(text: str, ask: Ask) -> Wanted:
    """``4``, or names in Slurm's form: ``node3,node[5-8]``.

    Raises:
        ConfigError: it is neither.
    """
    with suppress(ValueError):
        return Wanted(int(text))
    try:
        names = tuple(dict.fromkeys(hostnames(text, ask)))
    except SlurmError as error:
        if error.passing:
            raise
        raise ConfigError(
            f"NODES={text}: expected a number, or names like node3,node[5-8]; scontrol says: "
            f"{error.came}"
        ) from error
    return Wanted(len(names), names)


def hostnames(text: str, ask: Ask) -> list[str]:
    """Slurm's short form, as node[1-3], one name after another."""
    return re.findall(r"(?m)^\S+$", ask(("scontrol", "show", "hostnames", text)))


def exclude_hint(nodes: str, *, failed: bool = True) -> str:
    """The end of a sentence on nodes that failed, as Slurm writes them: node1,node[3-4]; '' where
    none is known. Not ``failed``: nodes of a job, one of which did."""
    one_of = not failed and bool(set(nodes) & set("[,"))
    line = f"sbatch: {{exclude: '{'NAME' if one_of else nodes}'}}"
    todo = f"; to keep jobs off a bad node (sinfo -R lists them), write {line} in the site file"
    return todo if nodes else ""


def check_in_use(wanted: Wanted, site: Site, ask: Ask) -> None:
    """A sweep waits for nodes that are out of use; who measures an interconnect wants to know now.

    Raises:
        ConfigError: named nodes, or too many others, are unknown in the site's partition, down,
            drained, or reserved without a reservation of the site's.
    """
    states = _node_states(ask, site.partition)
    unusable = {
        name: state
        for name in wanted.names or sorted(states)
        if _OUT_OF_USE.match(state := states.get(name, "unknown"))
        or (site.reservation is None and _RESERVED.match(state))
    }
    usable = len(wanted.names or states) - len(unusable)
    if usable < wanted.number:
        listed = ", ".join(f"{name} is {state}" for name, state in [*unusable.items()][:8])
        raise ConfigError(
            f"NODES={','.join(wanted.names) or wanted.number}: only {usable} nodes take jobs, "
            f"others do not ({listed}); nothing was submitted. Ask for fewer or for others "
            "(sinfo -N lists all), or bring these back (sinfo -R shows why)"
        )


def leaves(ask: Ask) -> dict[str, str]:
    """Node -> leaf switch; empty where Slurm knows no switches, as at most sites."""
    try:
        text = ask(TOPOLOGY)
    except SlurmError as error:
        if error.passing:
            raise
        return {}  # another topology plugin than tree
    switches = re.findall(r"SwitchName=(\S+) Level=0 .*\bNodes=(\S+)", text)
    return {node: switch for switch, nodes in switches for node in hostnames(nodes, ask)}
