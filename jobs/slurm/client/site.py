"""Whether the cluster has what a site file and a sweep ask for, and how many jobs it takes.

Slurm itself accepts most impossible jobs without a word and lets them wait for ever.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from jobs.config.site import NodeLayout, Site
from jobs.config.yamlfile import unknown
from jobs.slurm.client.nodes import SINFO, Nodes, counted, max_array_size, partitions, read_sinfo
from jobs.slurm.client.reasons import limit_in
from jobs.slurm.client.run import SCONTROL, Ask, SlurmError, read_config, run
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
    names = partitions(group for group in nodes if group.default)
    if site.partition is not None:
        names = site.partition.split(",")
    offered = [[group for group in nodes if group.partition == name] for name in names]
    layouts = sorted(set(shapes), key=lambda shape: (shape.nodes, shape.ranks_per_node))
    problems = [*_partition_problems(names, nodes)]
    if not problems:
        problems += [*_job_problems(site, layouts, minutes or site.time_min, offered)]
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
        listed = ", ".join(existing)
        yield f"the cluster has no default partition: set partition: to one of {listed}"
    for name in names:
        if name not in existing:
            yield unknown("partition", name, existing)
        elif not any(group.up for group in nodes if group.partition == name):
            yield f"partition {name} is closed (its state in sinfo is not up)"


def _job_problems(
    site: Site,
    layouts: Iterable[NodeLayout],
    minutes: int,
    offered: Sequence[Sequence[Nodes]],
) -> Iterator[str]:
    """A job runs in one of the partitions, so that one in which it fits is enough."""
    longest = max(offered, key=lambda groups: groups[0].time_limit_min)[0]
    if minutes > longest.time_limit_min:
        packed = "" if minutes == site.time_min else f" (time_min: {site.time_min} for each cell)"
        yield (
            f"jobs of {minutes:,} minutes{packed} are longer than partition "
            f"{longest.partition} allows: {longest.time_limit_min:,.0f} minutes"
        )
    for layout in layouts:
        problems = [_layout_problem(site, layout, groups) for groups in offered]
        if all(problems):
            yield f"{layout}: {'; '.join(map(str, problems))}"


def _layout_problem(site: Site, layout: NodeLayout, groups: Sequence[Nodes]) -> str | None:
    partition, most = groups[0].partition, groups[0].job_nodes
    if layout.nodes > most:
        return f"jobs in partition {partition} may have {most:.0f} nodes"
    fits = groups
    for need, enough in _needs(site, layout.ranks_per_node):
        fits = [group for group in fits if enough(group)]
        if layout.nodes > _count(fits):
            there = " and ".join(map(str, groups))
            return f"needs {counted(layout.nodes)}{need}; partition {partition} has {there}"
    return None


def _needs(site: Site, ranks: int) -> Iterator[tuple[str, Callable[[Nodes], bool]]]:
    """Each thing that a job asks of a node: in words, and the test."""
    yield "", lambda _: True
    # a single word; Slurm itself must say what a formula of features selects
    if (word := site.constraint) is not None and re.fullmatch(r"[\w.-]+", word):
        yield f" with the feature {word}", lambda group: word in group.features
    if site.gpus != "none":
        yield f" with {ranks} {_kind(site)}", lambda group: group.gpus_of(site.gpu_type) >= ranks
    cpus, cpus_each = ranks * site.cpus_per_rank, site.cpus_per_rank
    need = f" with {cpus} CPUs ({ranks} x {cpus_each} of cpus_per_rank)"
    yield need, lambda group: group.cpus >= cpus
    if (memory_each := site.mem_per_rank_gb) is not None:
        memory = ranks * memory_each
        need = f" with {memory:g} GB memory ({ranks} x {memory_each:g} of mem_per_rank_gb)"
        yield need, lambda group: group.memory_mb >= memory * 1024


def _remarks(
    site: Site, layouts: Sequence[NodeLayout], offered: Sequence[Sequence[Nodes]]
) -> Iterator[str]:
    for groups in offered:
        whole, usable = _count(groups), _count(group for group in groups if group.usable)
        if usable < whole:
            out = f"{whole - usable} of {whole} nodes of partition {groups[0].partition}"
            waiting = ", ".join(str(layout) for layout in layouts if layout.nodes > usable)
            rest = f": jobs with {waiting} will wait for them" if waiting else ""
            yield f"{out} are out of use now{rest}"
    for layout in layouts:
        if site.exclusive and layout.ranks_per_node < site.ranks_per_node:
            idle = (site.ranks_per_node - layout.ranks_per_node) * layout.nodes
            yield f"exclusive: {layout} leaves {idle} {_kind(site)} idle in each job"


def _count(groups: Iterable[Nodes]) -> int:
    return sum(group.count for group in groups)


def _kind(site: Site) -> str:
    if site.gpus == "none":
        return "ranks"
    return "GPUs" if site.gpu_type is None else f"GPUs of type {site.gpu_type}"


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
