"""The site file that SITE=auto writes: what a cluster says of itself, and what the user's variables
say to Slurm, each key with its reason beside it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from jobs.config.precedence import Setting, user_settings
from jobs.slurm.client.granted import (
    NODES,
    PARTITIONS,
    Row,
    User,
    ask_if_allowed,
    cluster_name,
    read_rows,
    shut,
    takes,
)
from jobs.slurm.client.nodes import SINFO, Nodes, partitions, read_sinfo
from jobs.slurm.client.run import Ask, max_array_size
from train.errors import ConfigError

MPI_LIST = ("srun", "--mpi=list")
#: Most minutes of one job, where the partition allows more: enough for most cells, short enough to
#: start soon.
_TIME_MIN = 240
#: Ranks of a node without GPUs: each gets several cores where there are.
_CPU_RANKS = 4
#: Slurm gives no job all the memory of a node where the site keeps some for the system.
_MEMORY_SHARE = 0.9
_AMD = re.compile(r"mi\d+|amd|radeon|instinct", re.IGNORECASE)
#: A part of a GPU (MIG). NCCL connects no ranks on such parts.
_SLICE = re.compile(r"(?<![a-z\d])\dg[\W_]?\d+|(?<![a-z])mig(?![a-z])", re.IGNORECASE)
#: How sites name GPUs in features and partitions.
_GPU_NAME = re.compile(r"(?:gpu\w*|[avhklpb]\d{2,3}s?|gh200|rtx\w*|tesla|mi\d{3}\w*)", re.I)
#: What makes jobs without a known account impossible, in AccountingStorageEnforce.
_ENFORCING = {"all", "associations", "limits", "qos", "safe"}
_WIDTH = 24  # of a key with its value: comments begin there


class Line(NamedTuple):
    """A key of the file; with None it is left out."""

    key: str
    value: Any
    comment: str = ""


def propose(ask: Ask, config: Row, user: User, given: Mapping[str, Setting]) -> str:
    """The text of a site file; the same answers give the same text. No program is asked the same
    twice.

    ``config``: the settings of the cluster. ``given``: by key of a site file, what the command line
    asks for this time: it decides which partition is proposed, and is not written by itself.

    Raises:
        ConfigError: no partition takes this user's jobs.
        SlurmError: sinfo gives no answer.
    """
    nodes = read_sinfo(ask(SINFO))
    first, second = user_settings(user.environment)[0]
    asked = second | first
    user = user.granted(ask, config)
    rows = {row["PartitionName"]: row for row in read_rows(ask, PARTITIONS)}
    kinds = _kinds(nodes, rows, user, {**asked, **given})
    # nodes in use, of these with whole GPUs, then with parts of GPUs, then the most frequent kind
    kind = max(kinds, key=lambda one: (one.count > 0, *map(bool, _main_gpu(one)[1:]), one.count))
    row = rows.get(kind.partition, {})
    name = cluster_name(config)
    lines: tuple[Line | str, ...] = (
        f"# The cluster {name!r} as SITE=auto found it; not overwritten, so change it freely.",
        "# What is left out is not asked for. All keys, with their defaults: jobs/config/site.py",
        Line("title", f"{name}, found by SITE=auto"),
        "",
        *_whom(kind, nodes, row, config, user, asked),
        *_what(kind, kinds, row, config, ask),
        "",
        *_how(kind, kinds, ask),
    )
    own = [line for line in lines if isinstance(line, str) or line.key not in asked]
    said = [Line(key, one.value, one.words.partition("=")[0]) for key, one in asked.items()]
    return "".join(map(_text, [*own, *([""] if said else []), *said]))


def _kinds(
    nodes: Sequence[Nodes], rows: Mapping[str, Row], user: User, asked: Mapping[str, Setting]
) -> list[Nodes]:
    """The kinds of nodes of the partition that the user asks for; else of the default partition, or
    of the largest, among those that take this user's jobs."""
    if "partition" in asked:
        names = str(asked["partition"].value).split(",")
        if kinds := _alike(group for group in nodes if group.partition in names):
            return kinds
        raise ConfigError(
            f"{asked['partition']} was asked for, and sinfo lists {', '.join(partitions(nodes))}: "
            "name one of these, or leave it out"
        )
    own = {"account": user.accounts, "qos": user.qos}
    own |= {key: [str(asked[key].value)] for key in own if key in asked}
    user = replace(user, accounts=own["account"], qos=own["qos"])
    closed = {name: shut(rows.get(name, {}), user) for name in partitions(nodes)}
    fit = [one for one in nodes if one.open and one.count and not closed[one.partition]]
    if not fit:
        why = ", ".join(
            f"{name} ({closed[name] or 'inactive or drained'})" for name in partitions(nodes)
        )
        raise ConfigError(
            f"no partition of this cluster takes your jobs now (sinfo: {why}); "
            "write a site file (jobs/sites/cpu.yaml is an example) and name it with SITE=, or "
            "say ACCOUNT= or PARTITION=, or export SBATCH_ACCOUNT or SBATCH_PARTITION, where the "
            "cause is one of these"
        )
    usable = Counter[str]()
    for group in fit:
        usable[group.partition] += group.count if group.usable else 0

    def preference(group: Nodes) -> tuple[bool, bool, int]:
        shown = rows.get(group.partition, {}).get("Hidden") != "YES"
        return group.default, shown, usable[group.partition]

    partition = max(fit, key=preference).partition
    return _alike(group for group in nodes if group.partition == partition)


def _alike(nodes: Iterable[Nodes]) -> list[Nodes]:
    """Nodes that differ in their state alone as one kind, with how many of them are usable."""
    kinds: dict[Nodes, Nodes] = {}
    for group in nodes:
        key = replace(group, count=0, state="", features=())
        before = kinds.get(key, key)
        kinds[key] = replace(
            before,
            count=before.count + (group.count if group.usable else 0),
            features=tuple(dict.fromkeys((*before.features, *group.features))),
        )
    return list(kinds.values())


def _whom(
    kind: Nodes,
    nodes: Sequence[Nodes],
    row: Row,
    config: Row,
    user: User,
    asked: Mapping[str, Setting],
) -> Iterator[Line | str]:
    """Partition, account and QoS."""
    default = "the default one" if kind.default else "the largest that takes your jobs"
    yield Line("partition", kind.partition, f"sinfo: {default}")
    others = partitions(group for group in nodes if group.open and group.gpus)
    if others and not kind.gpus:
        yield f"# GPUs are in partition: {', '.join(others)}"
    enforced = _ENFORCING & set(config.get("AccountingStorageEnforce", "").split(","))
    limited = row.get("AllowAccounts", "ALL") != "ALL" or "DenyAccounts" in row
    account = next((name for name in user.accounts if takes(row, "Accounts", name)), None)
    if "account" in asked:
        pass
    elif account and (enforced or limited):
        which = "your default one" if account == user.accounts[0] else "the partition takes it"
        yield Line("account", account, f"sacctmgr: {which}")
    elif enforced and "none" not in config.get("AccountingStorageType", "none"):
        yield "# account: jobs need one here (AccountingStorageEnforce), and sacctmgr names none of"
        yield "# yours: ask the site for its name, then write it here or say ACCOUNT=name"
    else:
        yield "# account: my_project   # where jobs need one: sacctmgr show assoc user=$USER"
    qos = next((name for name in user.qos if takes(row, "Qos", name)), None)
    if qos and qos != user.default_qos:
        yield Line("qos", qos, "of yours, the partition's")


def _what(
    kind: Nodes, kinds: Sequence[Nodes], row: Row, config: Row, ask: Ask
) -> Iterator[Line | str]:
    """What a job asks of its nodes."""
    gpu_type, whole, parts = _main_gpu(kind)
    gpus = whole or parts
    alike = [
        node
        for node in read_rows(ask, NODES)
        if kind.partition in node.get("Partitions", "").split(",")
        and (_number(node, "CPUTot"), _number(node, "RealMemory")) == (kind.cpus, kind.memory_mb)
    ]
    free = min([_for_jobs(node) for node in alike], default=kind.cpus)
    free = min(free, _number(row, "MaxCPUsPerNode") or free)
    ranks = max(1, min(gpus or _CPU_RANKS, free))
    cpus = max(1, free // ranks)
    threads = max([_number(node, "ThreadsPerCore") or 1 for node in alike], default=1)
    cpus -= cpus % threads if cpus > threads else 0  # whole cores: Slurm rounds up
    memory_mb = kind.memory_mb - max([_number(node, "MemSpecLimit") or 0 for node in alike] or [0])

    def most(key: str) -> int | None:
        """The partition's, where it sets one: scontrol shows the cluster's as UNLIMITED there."""
        return _number(row, key) or _number(config, key)

    memory_mb = min(memory_mb, most("MaxMemPerNode") or memory_mb)
    per_cpu = most("MaxMemPerCPU") or math.inf
    # RealMemory is 1 where nobody set it: then nothing is asked for
    share_mb = memory_mb * _MEMORY_SHARE / ranks
    memory = int(min(share_mb, cpus * per_cpu) / 1024 * 10) / 10
    linear = config.get("SelectType") == "select/linear"
    entire = linear or row.get("OverSubscribe", "").startswith("EXCLUSIVE")
    of_node = "GPUs of a node" if gpus else "no GPUs; ranks compute on CPU cores"
    yield Line("ranks_per_node", ranks, f"sinfo: {of_node}")
    yield Line("gpus", "gres" if gpus else None)
    types = sorted({name for group in kinds for name, _ in group.gpus})
    yield Line("gpu_type", gpu_type if types[1:] and gpu_type else None, f"of {', '.join(types)}")
    if parts:
        yield "# parts of GPUs (MIG): NCCL connects no ranks on such parts, so take one rank a job"
    reserved = "" if free == kind.cpus else f" ({free} for jobs)"
    yield Line("cpus_per_rank", cpus, f"sinfo: {kind.cpus} CPUs of a node{reserved} / {ranks}")
    share = f"sinfo: {_MEMORY_SHARE:.0%} of {memory_mb:,} MB / {ranks}"
    if share_mb > cpus * per_cpu:
        share = f"{cpus} CPUs x MaxMemPerCPU={per_cpu}"
    yield Line("mem_per_rank_gb", None if entire else memory or None, share)
    if entire:
        why = "SelectType=select/linear" if linear else "OverSubscribe=EXCLUSIVE"
        yield Line("exclusive", True, f"jobs get whole nodes, memory included: {why}")
    limit = f"{kind.time_limit_min:,.0f}".replace("inf", "infinite")
    minutes = int(min(_TIME_MIN, max(1, kind.time_limit_min)))
    yield Line("max_time_min", minutes, f"of a cell's job; the partition's limit: {limit}")
    yield "# time_min: 60          # fixes it; else 1.5 x the time of three earlier cells like it"
    largest = None if kind.job_nodes == math.inf else int(kind.job_nodes)
    yield Line("max_nodes", largest, "sinfo: nodes of one job")
    elements = max_array_size(config)
    alone = "; no arrays, so each job by itself" if elements == 1 else ""
    yield Line("array_limit", elements, f"scontrol show config: MaxArraySize{alone}")


def _how(kind: Nodes, kinds: Sequence[Nodes], ask: Ask) -> Iterator[Line | str]:
    """How ranks are launched."""
    plugins = ask_if_allowed(ask, MPI_LIST).split()
    pmix = next((word for word in sorted(plugins) if re.fullmatch(r"pmix(_v\d+)?", word)), None)
    lists = f"names {'it' if pmix else 'no pmix'}"
    refused = "is refused here: write pmix if the nodes have it"
    yield Line("mpi", pmix or "gloo", f"srun --mpi=list {lists if plugins else refused}")
    yield "# interface: eth0       # where ranks should talk: ip -brief address, on a node"
    gpu_type, *gpus = _main_gpu(kind)
    yield Line("image", "gpu" if any(gpus) else "cpu", "make image builds it")
    support = "rocm" if _AMD.search(gpu_type) else "nv"
    yield Line("gpu_support", support if any(gpus) else None, "apptainer exec --nv or --rocm")
    words = [kind.partition, *(feature for group in kinds for feature in group.features)]
    names = [one for word in words for one in re.split(r"[\W_]+", word) if _GPU_NAME.fullmatch(one)]
    if names and not any(gpus):
        yield f"# {', '.join(dict.fromkeys(names))}: the nodes seem to have GPUs that Slurm does"
        yield "# not count (no GRES). Where they have: ranks_per_node: the GPUs of a node,"
        yield "# exclusive: true, image: gpu, gpu_support: nv (and gpus: is left out)"


def _main_gpu(kind: Nodes) -> tuple[str, int, int]:
    """Type of the GPUs that ranks take, whole ones before parts (MIG); how many whole ones of it a
    node has; how many parts."""
    whole = [gpu for gpu in kind.gpus if not _SLICE.search(gpu[0])]
    name, count = max(whole or kind.gpus, key=lambda gpu: gpu[1], default=("", 0))
    return (name, count, 0) if whole else (name, 0, count)


def _for_jobs(node: Row) -> int:
    """CPUs of a node without those that it keeps for itself; CPUEfctv is new in 22.05."""
    kept = (_number(node, "CoreSpecCount") or 0) * (_number(node, "ThreadsPerCore") or 1)
    return _number(node, "CPUEfctv") or (_number(node, "CPUTot") or 0) - kept


def _number(row: Row, key: str) -> int | None:
    """None for UNLIMITED, as for what is not there."""
    text = row.get(key, "")
    return int(text) if text.isdecimal() else None


def _text(line: Line | str) -> str:
    """A line of the file, which YAML reads as what it says."""
    if isinstance(line, str):
        return f"{line}\n"
    if line.value is None:
        return ""
    yaml = YAML()
    yaml.width = 1_000_000
    yaml.dump({line.key: line.value}, stream := StringIO())
    text = stream.getvalue().rstrip("\n")
    # a # without a blank before it would belong to the value
    return (f"{text:<{_WIDTH - 1}} # {line.comment}" if line.comment else text) + "\n"
