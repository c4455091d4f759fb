"""Whether the cluster has what a site file and a sweep ask for, and how many jobs it takes.

Slurm itself accepts most impossible jobs silently and lets them wait for ever.
"""

from __future__ import annotations

import math
import os
import pwd
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter

from jobs.config.site import NodeLayout, Site
from jobs.config.yamlfile import unknown
from jobs.slurm.client.nodes import SINFO, Nodes, partitions, read_sinfo
from jobs.slurm.client.run import SCONTROL, Ask, SlurmError, max_array_size, read_config, run
from train.errors import ConfigError

#: Of jobs that may be submitted, in a site's own words for a refusal.
_NUMBER = re.compile(r"(?:limit|maximum|at most|no more than|up to|max)\b[^\d\n]{0,40}(\d+)", re.I)


def check_site(
    site: Site, layouts: Iterable[NodeLayout], ask: Ask, *, minutes: int
) -> tuple[str, ...]:
    """Two questions to Slurm, whatever the size of the sweep. Returns remarks for the user.

    ``minutes``: the longest time limit of a job.

    Raises:
        ConfigError: all that cannot work, with what the cluster has.
    """
    nodes = read_sinfo(ask(SINFO))
    names = partitions(group for group in nodes if group.default)
    if site.partition is not None:
        names = site.partition.split(",")
    offered = [[group for group in nodes if group.partition == name] for name in names]
    layouts = sorted(set(layouts), key=attrgetter("nodes", "ranks_per_node"))
    taking = partitions(group for group in nodes if group.up)
    problems = [
        unknown("or closed partition", name, taking) for name in names if name not in taking
    ]
    if not names:
        problems.append(
            f"the cluster has no default partition: set partition: to one of {', '.join(taking)}"
        )
    if not problems:
        problems += _job_problems(site, layouts, minutes, offered)
    if site.array_limit > (most := max_array_size(read_config(ask(SCONTROL)))):
        problems.append(
            f"array_limit: {site.array_limit} is more than the elements that the cluster takes "
            f"in one array: set array_limit: {most} (MaxArraySize)"
        )
    if problems:
        raise ConfigError(
            "\n  ".join(["the cluster cannot run this; nothing was submitted:", *problems])
        )
    return tuple(filter(None, (_remark(layouts, groups) for groups in offered)))


def _job_problems(
    site: Site, layouts: Iterable[NodeLayout], minutes: int, offered: Sequence[Sequence[Nodes]]
) -> Iterator[str]:
    """A job runs in one of the partitions, so that one in which it fits is enough."""
    longest = max(offered, key=lambda groups: groups[0].time_limit_min)[0]
    if minutes > longest.time_limit_min:
        key = "max_time_min" if site.time_min is None else "time_min"
        yield (
            f"jobs of {minutes:,} minutes ({key}: {site.longest_min} for each cell) are longer "
            f"than partition {longest.partition} allows: {longest.time_limit_min:,.0f} minutes"
        )
    there = "; ".join(map(_there, offered))
    for layout in layouts:
        needs = list(_needs(site, layout.ranks_per_node))
        for groups in offered:
            fitting = (group for group in groups if all(has(group) for _, has in needs))
            if layout.nodes <= min(_count(fitting), groups[0].job_nodes):
                break
        else:
            words = ", ".join(words for words, _ in needs)
            yield f"{layout}: each node needs {words}; {there}"


def _there(groups: Sequence[Nodes]) -> str:
    """What a partition has, in words."""
    most = groups[0].job_nodes
    limit = "" if most == math.inf else f", of which a job may have {most:.0f}"
    return f"partition {groups[0].partition} has {' and '.join(map(str, groups))}{limit}"


def _needs(site: Site, ranks: int) -> Iterator[tuple[str, Callable[[Nodes], bool]]]:
    """What a job with so many ranks on a node asks of it: in words, and whether nodes have it."""
    cpus, memory_gb, feature = site.cpus_per_rank, site.mem_per_rank_gb, site.constraint
    if site.gpus != "none":
        kind = "GPUs" if site.gpu_type is None else f"GPUs of type {site.gpu_type}"
        yield f"{ranks} {kind}", lambda node: node.gpus_of(site.gpu_type) >= ranks
    yield f"{ranks} x {cpus} CPUs (cpus_per_rank)", lambda node: node.cpus >= ranks * cpus
    if memory_gb is not None:
        words = f"{ranks} x {memory_gb:g} GB memory (mem_per_rank_gb)"
        yield words, lambda node: node.memory_mb >= ranks * memory_gb * 1024
    # Slurm itself must say what a formula of features selects
    if feature is not None and re.fullmatch(r"[\w.-]+", feature):
        yield f"the feature {feature}", lambda node: feature in node.features


def _remark(layouts: Iterable[NodeLayout], groups: Sequence[Nodes]) -> str | None:
    """Of nodes in a partition that are out of use."""
    whole, usable = _count(groups), _count(group for group in groups if group.usable)
    if usable == whole:
        return None
    waiting = ", ".join(str(layout) for layout in layouts if layout.nodes > usable)
    rest = f": jobs with {waiting} will wait for them" if waiting else ""
    out = f"{whole - usable} of {whole} nodes of partition {groups[0].partition}"
    return f"{out} are out of use now{rest}"


def _count(groups: Iterable[Nodes]) -> int:
    return sum(group.count for group in groups)


def submit_limit(refusal: str, site: Site, cluster: str | None = None) -> int | None:
    """How many jobs the user may have in the queue, after a refusal of too many; None where nothing
    says it. The smallest of the numbers in the refusal, in the user's association, in its QoS and
    in the partition's QoS.
    """

    def lines(*argv: str) -> list[str]:
        """Nothing where there is no answer, as where no accounts are kept."""
        with suppress(SlurmError):
            answer = run(argv)
            return answer.out.splitlines() if answer.code == 0 else []
        return []

    def fields(names: str, *what: str) -> list[str]:
        argv = ("sacctmgr", "--noheader", "--parsable2", "show", *what, f"format={names}")
        return [field for line in lines(*argv) for field in line.split("|")]

    numbers = _NUMBER.findall(refusal)
    with suppress(KeyError):  # an id without a name has no associations either
        user = pwd.getpwuid(os.getuid()).pw_name
        account = [site.account] if site.account else fields("DefaultAccount", "user", user)
        mine = ["associations", f"user={user}", *(f"account={name}" for name in account[:1])]
        mine += [f"cluster={cluster}"] if cluster else []
        qos = {site.qos} if site.qos else {*fields("DefaultQOS", *mine)}
        # of the site's partition, or of the cluster's default one
        named = site.partition.split(",")[:1] if site.partition else []
        for line in lines("scontrol", "--all", "--oneliner", "show", "partition", *named):
            if named or " Default=YES" in line:
                qos.update(re.findall(r" QoS=(\S+)", line))
        names = ",".join(sorted(qos - {"", "N/A"})) or "normal"
        numbers += fields("MaxSubmitJobs,GrpSubmitJobs", *mine)
        kinds = "MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs"
        numbers += fields(kinds, "qos", f"name={names}")
    return min((int(text) for text in numbers if text.isdigit() and int(text)), default=None)
