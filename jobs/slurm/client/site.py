"""Whether the cluster has what a site file and a sweep ask for, and how many jobs it takes.

Slurm itself accepts most impossible jobs without a word and lets them wait for ever.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from jobs.config.site import Site
from jobs.config.yamlfile import unknown
from jobs.slurm.arrays import NodeLayout
from jobs.slurm.client.nodes import (
    SCONTROL,
    SINFO,
    Nodes,
    max_array_size,
    partitions,
    read_config,
    read_sinfo,
)
from jobs.slurm.client.reasons import limit_in
from jobs.slurm.client.run import Ask, SlurmError, run
from train.errors import ConfigError


def check_site(
    site: Site, shapes: Iterable[NodeLayout], ask: Ask, *, minutes: int | None = None
) -> tuple[str, ...]:
    """Two questions to Slurm, whatever the size of the sweep. Returns remarks for the user.

    ``minutes``: the longest time limit of a job; default: the site's for one cell.

    Raises:
        ConfigError: all that cannot work, with what the cluster has.
    """
    nodes = read_sinfo(ask(SINFO))
    size = max_array_size(read_config(ask(SCONTROL)))
    if site.partition is None:
        names = partitions(group for group in nodes if group.default)
    else:
        names = site.partition.split(",")
    offered = [group for group in nodes if group.partition in names]
    layouts = sorted(set(shapes), key=lambda shape: (shape.nodes, shape.ranks_per_node))
    problems = [*_partition_problems(names, nodes)]
    if not problems:
        problems += _time_problems(site, offered, minutes or site.time_min)
        problems += [text for one in layouts if (text := _layout_problem(site, one, offered))]
    if size is not None and site.array_limit > size:
        problems.append(
            f"array_limit: {site.array_limit} is more than the elements that the cluster takes "
            f"in one array: set array_limit: {size} (MaxArraySize)"
        )
    if problems:
        raise ConfigError(
            "\n  ".join(["the cluster cannot run this; nothing was submitted:", *problems])
        )
    return tuple(_remarks(site, layouts, offered))


def _partition_problems(names: Sequence[str], nodes: Sequence[Nodes]) -> Iterator[str]:
    existing = partitions(nodes)
    if not names:
        yield f"the cluster has no default partition: set partition: to one of {_listed(nodes)}"
    for name in names:
        if name not in existing:
            yield unknown("partition", name, existing)
        elif not any(group.up for group in nodes if group.partition == name):
            yield f"partition {name} is closed (its state in sinfo is not up)"


def _time_problems(site: Site, offered: Sequence[Nodes], longest: int) -> Iterator[str]:
    most = max(group.time_limit_min for group in offered)
    if longest > most:
        packed = "" if longest == site.time_min else f" (time_min: {site.time_min} for each cell)"
        yield (
            f"jobs of {longest:,} minutes{packed} are longer than partition "
            f"{_listed(offered)} allows: {most:,.0f} minutes"
        )


def _layout_problem(site: Site, layout: NodeLayout, offered: Sequence[Nodes]) -> str | None:
    where = f"partition {_listed(offered)}"
    most = max(group.job_nodes for group in offered)
    if layout.nodes > most:
        return f"{layout}: jobs in {where} may have {most:.0f} nodes"
    fits = _largest_partition(offered)
    if layout.nodes > _count(fits):
        return f"{layout}: {where} has {_nodes(_count(fits))}"
    for what, enough, has in _needs(site, layout.ranks_per_node):
        left = [group for group in fits if enough(group)]
        if layout.nodes > _count(left):
            there = ", ".join(f"{_nodes(group.count)} with {has(group)}" for group in fits)
            return f"{layout}: needs {_nodes(layout.nodes)} with {what}; {where} has {there}"
        fits = left
    return None


def _needs(
    site: Site, ranks: int
) -> Iterator[tuple[str, Callable[[Nodes], bool], Callable[[Nodes], str]]]:
    """Each thing that a job asks of a node: in words, the test, and what a node has of it."""
    # a single word; Slurm itself must say what a formula of features selects
    if (word := site.constraint) is not None and re.fullmatch(r"[\w.-]+", word):
        yield (
            f"the feature {word}",
            lambda group: word in group.features,
            lambda group: "features " + (",".join(group.features) or "(none)"),
        )
    if site.gpus != "none":
        yield (
            f"{ranks} {_kind(site)}",
            lambda group: group.gpus_of(site.gpu_type) >= ranks,
            lambda group: ", ".join(f"{n} GPUs {t}".strip() for t, n in group.gpus) or "no GPU",
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


def _remarks(site: Site, layouts: Sequence[NodeLayout], offered: Sequence[Nodes]) -> Iterator[str]:
    groups = _largest_partition(offered)
    whole, usable = _count(groups), _count(group for group in groups if group.usable)
    if usable < whole:
        text = (
            f"{whole - usable} of {whole} nodes of partition {_listed(offered)} are out of use now"
        )
        waiting = ", ".join(str(layout) for layout in layouts if layout.nodes > usable)
        yield text + (f": jobs with {waiting} will wait for them" if waiting else "")
    for layout in layouts:
        if site.exclusive and layout.ranks_per_node < site.ranks_per_node:
            idle = (site.ranks_per_node - layout.ranks_per_node) * layout.nodes
            yield f"exclusive: {layout} leaves {idle} {_kind(site)} idle in each job"


def _largest_partition(offered: Sequence[Nodes]) -> list[Nodes]:
    """Of several partitions only the largest: partitions may share their nodes."""
    each = [[g for g in offered if g.partition == name] for name in partitions(offered)]
    return max(each, key=_count)


def _count(groups: Iterable[Nodes]) -> int:
    return sum(group.count for group in groups)


def _kind(site: Site) -> str:
    if site.gpus == "none":
        return "ranks"
    return "GPUs" if site.gpu_type is None else f"GPUs of type {site.gpu_type}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _listed(groups: Sequence[Nodes]) -> str:
    return ",".join(partitions(groups))


def submit_limit(refusal: str, site: Site, cluster: str | None = None) -> int | None:
    """How many jobs the user may have in the queue, after sbatch's refusal; None where nothing
    says it. The smallest of the numbers in the refusal, in the user's association, in its QoS and
    in the partition's QoS.
    """
    numbers = [str(limit_in(refusal) or "")]
    with suppress(KeyError):  # an id without a name has no associations either
        user = pwd.getpwuid(os.getuid()).pw_name
        account = [site.account] if site.account else _show(site, "user", user, "DefaultAccount")
        mine = ["associations", f"user={user}", *(f"account={name}" for name in account[:1])]
        mine += [f"cluster={cluster}"] if cluster else []
        qos = [site.qos] if site.qos else _show(site, *mine, "DefaultQOS")
        names = ",".join(sorted({*qos, *_partition_qos(site)} - {""})) or "normal"
        numbers += _show(site, *mine, "MaxSubmitJobs,GrpSubmitJobs")
        kinds = "MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs"
        numbers += _show(site, "qos", f"name={names}", kinds)
    return min((int(text) for text in numbers if text.isdigit() and int(text)), default=None)


def _partition_qos(site: Site) -> list[str]:
    """Of the site's partition, or of the cluster's default one."""
    named = [] if site.partition is None else [site.partition.split(",")[0]]
    lines = _lines(site, "scontrol", "--all", "--oneliner", "show", "partition", *named)
    ours = [line for line in lines if named or " Default=YES" in line]
    return [name for line in ours for name in re.findall(r" QoS=(\S+)", line) if name != "N/A"]


def _show(site: Site, *what: str) -> list[str]:
    """The fields of sacctmgr's answer; the last word names them."""
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", *what[:-1], f"format={what[-1]}"]
    return [field for line in _lines(site, *argv) for field in line.split("|")]


def _lines(site: Site, *argv: str) -> list[str]:
    """Nothing where there is no answer, as where no accounts are kept."""
    with suppress(SlurmError):
        answer = run(argv, slurm_conf=site.slurm_conf)
        return [line.strip() for line in answer.out.splitlines()] if answer.code == 0 else []
    return []
