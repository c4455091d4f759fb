"""SITE=: which cluster, or this machine; SITE=auto writes a site file from what the cluster says of
itself.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from pathlib import Path

from jobs.config.site import AUTO, LOCAL, SITES, NamedSite, auto_file, load_site
from jobs.messages import NoAnswer, say
from jobs.slurm.client.nodes import SINFO, partitions, read_sinfo
from jobs.slurm.client.run import SCONTROL, Ask, SlurmError, asker, max_array_size, read_config
from train.errors import ConfigError
from train.record.atomic import write_atomically

MPI_LIST = ("srun", "--mpi=list")
#: Either of them, even where this user may not run it, is a sign of Slurm; another package has a
#: sinfo, too.
_PROGRAMS = ("srun", "sbatch")
#: They say so where there is no slurm.conf and the name service knows no controller to ask for one
#: (tried with 22.05 and 24.11). Their last words would not do: a login node whose controller does
#: not answer ends with them, too, and so does one whose name service is down.
_NO_CONFIGURATION = re.compile("res_nsearch error: (Unknown host|No address associated with name)")
#: Of one job, where the partition allows more: enough for most cells, short enough to start soon.
_TIME_MIN = 240
#: Ranks of a node without GPUs: each gets several cores where there are.
_CPU_RANKS = 4
#: Slurm gives no job all the memory of a node where the site keeps some for the system.
_MEMORY_SHARE = 0.9
_WORD = re.compile(r"(?!(null|true|false)$)[A-Za-z][A-Za-z0-9_.-]*", re.IGNORECASE)
_AMD = re.compile(r"mi\d+|amd|radeon|instinct", re.IGNORECASE)


def site_for(name: str, folder: Path | None = None) -> NamedSite | None:
    """The site that SITE= names; None for this machine.

    ``auto`` is the cluster that answers here, as its file in ``folder`` (by default the user's own
    folder) says; the first time, that file is written from what the cluster says of itself.

    Raises:
        ConfigError: no such site, or an error in its file.
        NoAnswer: Slurm's programs are here and fail: whether there is a cluster is not known, and a
            login node is no place to train on unasked.
    """
    installed = any(shutil.which(program, mode=os.F_OK) for program in _PROGRAMS)
    if name == LOCAL or (name == AUTO and not installed):
        return None
    if name != AUTO:
        return load_site(name, folder or SITES)
    conf = os.environ.get("SLURM_CONF")
    try:
        cluster, text = find_site(asker(conf), slurm_conf=conf)
    except SlurmError as error:
        # client packages alone, as on a laptop: there is no cluster that could be meant
        if _NO_CONFIGURATION.search(error.came):
            say("Slurm's programs are here, but no configuration of a cluster: running on this "
                "machine")  # fmt: skip
            return None
        raise NoAnswer(
            f"Slurm is here but gives no answer ({error}), so nothing was set up or run. Where "
            "this is a login node, try again later or tell its administrators; SITE=local runs "
            "on this very machine"
        ) from error
    # never one of the examples
    file = folder / f"auto-{cluster}.yaml" if folder else auto_file(cluster)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text)
        say(f"found a cluster and wrote {file}: look it over, change what is wrong\n{text}")
    return load_site(str(file))


def refuse_image(image: str, site: NamedSite) -> None:
    """Raises ConfigError where IMAGE= would be ignored."""
    if image:
        raise ConfigError(
            f"IMAGE={image} is for ranks on this machine: say SITE=local, too. The image of the "
            f"cluster's jobs is the key image: of {site.source}"
        )


def find_site(ask: Ask, *, slurm_conf: str | None = None) -> tuple[str, str]:
    """Ask sinfo, scontrol and srun once each. Returns the cluster's name, fit for that of a file,
    and the text of a site file; the same answers give the same text.

    ``slurm_conf``: the caller's SLURM_CONF, so that jobs find the cluster that answered.

    Raises:
        ConfigError: no partition takes jobs.
    """
    nodes = read_sinfo(ask(SINFO))
    config = read_config(ask(SCONTROL))
    mpi = "pmix" if "pmix" in ask(MPI_LIST).split() else "gloo"
    up = [group for group in nodes if group.up]
    if not up:
        raise ConfigError(
            f"no partition of this cluster takes jobs now (sinfo: {', '.join(partitions(nodes))}); "
            "write a site file (jobs/sites/cpu.yaml is an example) and name it with SITE="
        )
    # the default partition, or the largest; there, nodes with GPUs, then the most frequent kind
    partition = max(up, key=lambda group: (group.default, group.count)).partition
    kinds = [group for group in nodes if group.partition == partition]
    kind = max(kinds, key=lambda group: (group.gpus_of(None) > 0, group.count))
    gpu_type, gpus = max(kind.gpus, key=lambda item: item[1], default=("", 0))
    types = sorted({name for group in kinds for name, _ in group.gpus})
    others = "" if gpus else ", ".join(partitions(g for g in up if g.gpus_of(None)))
    default = "the default one" if kind.default else "the largest that is up; none is the default"
    ranks = gpus or min(_CPU_RANKS, kind.cpus)
    of_node = "GPUs of a node" if gpus else "no GPUs; ranks compute on CPU cores"
    cpus = max(1, kind.cpus // ranks)
    # RealMemory is 1 where nobody set it: then nothing is asked for
    memory = int(kind.memory_mb * _MEMORY_SHARE / ranks / 1024 * 10) / 10
    share = f"{_MEMORY_SHARE:.0%} of {kind.memory_mb:,} MB / {ranks}"
    minutes = int(min(_TIME_MIN, max(1, kind.time_limit_min)))
    limit = f"{kind.time_limit_min:,.0f}".replace("inf", "infinite")
    most = None if kind.job_nodes == math.inf else int(kind.job_nodes)
    support = ("rocm" if _AMD.search(gpu_type) else "nv") if gpus else None
    cluster = config.get("ClusterName", "cluster")
    lines = (
        f"# The cluster {cluster!r} as SITE=auto found it; not written anew, so change it freely.",
        "# What is left out is not asked for. All keys, with their defaults: jobs/config/site.py",
        _line("title", f"{cluster}, found by SITE=auto"),
        "",
        _line("partition", partition, f"sinfo: {default}"),
        f"# GPUs are in partition: {others}" if others else None,
        "# account: my_project   # where jobs need one: sacctmgr show assoc user=$USER",
        _line("ranks_per_node", ranks, f"sinfo: {of_node}"),
        _line("gpus", "gres" if gpus else None),
        _line("gpu_type", gpu_type if gpu_type and types[1:] else None, f"of {', '.join(types)}"),
        _line("cpus_per_rank", cpus, f"sinfo: {kind.cpus} CPUs of a node / {ranks}"),
        _line("mem_per_rank_gb", memory or None, f"sinfo: {share}"),
        _line("time_min", minutes, f"of one job; the partition's limit: {limit}"),
        _line("max_nodes", most, "sinfo: nodes of one job"),
        _line("array_limit", max_array_size(config), "scontrol show config: MaxArraySize"),
        "",
        _line("mpi", mpi, f"srun --mpi=list names {'it' if mpi == 'pmix' else 'no pmix'}"),
        "# interface: eth0       # where ranks should talk: ip -brief address, on a node",
        _line("image", "gpu" if gpus else "cpu", "make image builds it"),
        _line("gpu_support", support, "apptainer exec --nv or --rocm"),
        None if slurm_conf is None else "",
        _line("slurm_conf", slurm_conf, "SLURM_CONF"),
    )
    text = "".join(f"{line}\n" for line in lines if line is not None)
    return re.sub(r"[^A-Za-z0-9_-]+", "_", cluster), text


def _line(key: str, value: str | float | None, comment: str = "") -> str | None:
    """``key: value  # comment``; text so that YAML reads it back, whatever characters it has. None
    for None: the key is left out."""
    if value is None:
        return None
    if isinstance(value, str) and _WORD.fullmatch(value) is None:
        value = json.dumps(value, ensure_ascii=False)
    text = f"{key}: {value}"
    return f"{text:<24}# {comment}" if comment else text
