"""SITE=: which cluster, or this machine; SITE=auto writes a site file from what the cluster says of
itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.config.site import AUTO, LOCAL, SITES, NamedSite, load_site
from jobs.messages import NoAnswer, say
from jobs.slurm.client.nodes import (
    SCONTROL,
    SINFO,
    Nodes,
    max_array_size,
    partitions,
    read_config,
    read_sinfo,
)
from jobs.slurm.client.run import Ask, SlurmError, asker
from train.errors import ConfigError
from train.record.atomic import write_atomically

MPI_LIST = ("srun", "--mpi=list")
#: Either of them, even where this user may not run it, is a sign of Slurm; another package has a
#: sinfo, too.
_PROGRAMS = ("srun", "sbatch")
#: How they end where there is no slurm.conf and the name service knows no controller to ask for one
#: (tried with 22.05 and 24.11). The last words alone would not do: a login node whose controller
#: does not answer, or refuses it (munge), ends with them, too, and so does one whose name service
#: is down.
_NO_CONFIGURATION = ("DNS SRV lookup failed", "Could not establish a configuration source")
_NO_SUCH_NAME = re.compile("res_nsearch error: (Unknown host|No address associated with name)")
#: Of one job, where the partition allows more: enough for most cells, short enough to start soon.
_TIME_MIN = 240
#: Ranks of a node without GPUs: each gets several cores where there are.
_CPU_RANKS = 4
#: Slurm gives no job all the memory of a node where the site keeps some for the system.
_MEMORY_SHARE = 0.9
#: RealMemory is 1 where nobody set it.
_LEAST_MEMORY_MB = 500
_WORD = re.compile(r"(?!(null|true|false)$)[A-Za-z][A-Za-z0-9_.-]*", re.IGNORECASE)
_AMD = re.compile(r"mi\d+|amd|radeon|instinct", re.IGNORECASE)


def site_for(name: str, folder: Path = SITES) -> NamedSite | None:
    """The site that SITE= names; None for this machine.

    ``auto`` is the cluster that answers here, as its file in ``folder`` says; the first time, that
    file is written from what the cluster says of itself.

    Raises:
        ConfigError: no such site, or an error in its file.
        NoAnswer: Slurm's programs are here and fail: whether there is a cluster is not known, and a
            login node is no place to train on unasked.
    """
    installed = any(shutil.which(program, mode=os.F_OK) for program in _PROGRAMS)
    if name == LOCAL or (name == AUTO and not installed):
        return None
    if name != AUTO:
        return load_site(name, folder)
    conf = os.environ.get("SLURM_CONF")
    try:
        found = find_site(asker(conf), slurm_conf=conf)
    except SlurmError as error:
        # client packages alone, as on a laptop: there is no cluster that could be meant
        unnamed = _NO_SUCH_NAME.search(error.came)
        if unnamed and all(words in error.came for words in _NO_CONFIGURATION):
            say("Slurm's programs are here, but no configuration of a cluster: running on this "
                "machine")  # fmt: skip
            return None
        raise NoAnswer(
            f"Slurm is here but gives no answer ({error}), so nothing was set up or run. Where "
            "this is a login node, try again later or tell its administrators; SITE=local runs "
            "on this very machine"
        ) from error
    file = folder / f"auto-{found.name}.yaml"  # never one of the examples in the same folder
    if not file.exists():
        write_atomically(file, found.text)
        say(f"found a cluster and wrote {file}: look it over, change what is wrong")
        say(f"  {found.summary}")
    return load_site(str(file))


def refuse_image(image: str, site: NamedSite) -> None:
    """Raises ConfigError where IMAGE= would be ignored."""
    if image:
        raise ConfigError(
            f"IMAGE={image} is for ranks on this machine: say SITE=local, too. The image of the "
            f"cluster's jobs is the key image: of {site.source}"
        )


@dataclass(frozen=True)
class FoundSite:
    name: str  # of the cluster, fit for a file
    text: str  # of the site file
    summary: str  # for the user


def find_site(ask: Ask, *, slurm_conf: str | None = None) -> FoundSite:
    """Ask sinfo, scontrol and srun once each. The same answers give the same text.

    ``slurm_conf``: the caller's SLURM_CONF, so that jobs find the cluster that answered.

    Raises:
        ConfigError: no partition takes jobs.
    """
    nodes = read_sinfo(ask(SINFO))
    config = read_config(ask(SCONTROL))
    pmix = "pmix" in ask(MPI_LIST).split()
    up = [group for group in nodes if group.up]
    if not up:
        raise ConfigError(
            f"no partition of this cluster takes jobs now (sinfo: {', '.join(partitions(nodes))}); "
            "write a site file (jobs/sites/cpu.yaml is an example) and name it with SITE="
        )
    # the default partition, or the largest; there, nodes with GPUs, then the most frequent kind
    chosen = max(up, key=lambda group: (group.default, group.count)).partition
    kinds = [group for group in nodes if group.partition == chosen]
    kind = max(kinds, key=lambda group: (group.gpus_of(None) > 0, group.count))
    cluster = config.get("ClusterName", "cluster")
    lines = [
        f"# The cluster {cluster!r} as SITE=auto found it; not written anew, so change it freely.",
        "# What is left out is not asked for. All keys, with their defaults: jobs/config/site.py",
        _line("title", f"{cluster}, found by SITE=auto"),
        "",
        *_resources(kind, nodes, max_array_size(config)),
        "",
        *_launching(kind, pmix=pmix),
        *([] if slurm_conf is None else ["", _line("slurm_conf", slurm_conf, "SLURM_CONF")]),
    ]
    gpu_type, gpus = _gpus(kind)
    summary = (
        f"partition {chosen}: {sum(group.count for group in kinds)} nodes, "
        f"{f'{gpus} GPUs {gpu_type}'.strip() if gpus else 'no GPU'} and {kind.cpus} CPUs each; "
        f"ranks meet by {'PMIx' if pmix else 'Gloo'}"
    )
    if not gpus and (others := _with_gpus(up)):
        summary += f"; there are GPUs in partition {others}: name one in the site file"
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", cluster)
    return FoundSite(name, "\n".join(lines) + "\n", summary)


def _resources(kind: Nodes, nodes: Sequence[Nodes], array_limit: int | None) -> Iterator[str]:
    """Lines of the site file: what a job asks Slurm for."""
    gpu_type, gpus = _gpus(kind)
    ranks = gpus or min(_CPU_RANKS, kind.cpus)
    why = "the default one" if kind.default else "the largest that is up; none is the default"
    yield _line("partition", kind.partition, f"sinfo: {why}")
    if not gpus and (others := _with_gpus(group for group in nodes if group.up)):
        yield f"# GPUs are in partition: {others}"
    yield "# account: my_project   # where jobs need one: sacctmgr show assoc user=$USER"
    why = "GPUs of a node" if gpus else "no GPUs; ranks compute on CPU cores"
    yield _line("ranks_per_node", ranks, f"sinfo: {why}")
    if gpus:
        yield _line("gpus", "gres")
        types = {name for group in nodes if group.partition == kind.partition
                 for name, _ in group.gpus}  # fmt: skip
        if gpu_type and len(types) > 1:
            yield _line("gpu_type", gpu_type, f"of {', '.join(sorted(types))}")
    cpus = max(1, kind.cpus // ranks)
    yield _line("cpus_per_rank", cpus, f"sinfo: {kind.cpus} CPUs of a node / {ranks}")
    if kind.memory_mb >= _LEAST_MEMORY_MB:
        memory = int(kind.memory_mb * _MEMORY_SHARE / ranks / 1024 * 10) / 10
        why = f"sinfo: {_MEMORY_SHARE:.0%} of {kind.memory_mb:,} MB / {ranks}"
        yield _line("mem_per_rank_gb", memory, why)
    minutes = int(min(_TIME_MIN, max(1, kind.time_limit_min)))
    limit = f"{kind.time_limit_min:,.0f}".replace("inf", "infinite")
    yield _line("time_min", minutes, f"of one job; the partition's limit: {limit}")
    if kind.job_nodes != float("inf"):
        yield _line("max_nodes", int(kind.job_nodes), "sinfo: nodes of one job")
    if array_limit:
        yield _line("array_limit", array_limit, "scontrol show config: MaxArraySize")


def _launching(kind: Nodes, *, pmix: bool) -> Iterator[str]:
    """Lines of the site file: how ranks are launched."""
    gpu_type, gpus = _gpus(kind)
    if pmix:
        yield _line("mpi", "pmix", "srun --mpi=list names it")
    else:
        yield _line("mpi", "gloo", "srun --mpi=list names no pmix")
    yield "# interface: eth0       # where ranks should talk: ip -brief address, on a node"
    yield _line("image", "gpu" if gpus else "cpu", "make image builds it")
    if gpus:
        support = "rocm" if _AMD.search(gpu_type) else "nv"
        yield _line("gpu_support", support, "apptainer exec --nv or --rocm")


def _gpus(kind: Nodes) -> tuple[str, int]:
    """Type and number of the GPUs of which a node has most."""
    return max(kind.gpus, key=lambda item: item[1], default=("", 0))


def _with_gpus(groups: Iterable[Nodes]) -> str:
    return ", ".join(partitions(group for group in groups if group.gpus_of(None)))


def _line(key: str, value: str | float, comment: str = "") -> str:
    """``key: value  # comment``; text so that YAML reads it back, whatever characters it has."""
    if isinstance(value, str) and _WORD.fullmatch(value) is None:
        value = json.dumps(value, ensure_ascii=False)
    text = f"{key}: {value}"
    return f"{text:<24}# {comment}" if comment else text
