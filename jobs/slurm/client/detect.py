"""SITE=: which cluster, or this machine, and as whom; SITE=auto writes a site file out of what the
cluster says of itself.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.config.site import AUTO, LOCAL, SITES, NamedSite, load_site, site_names
from jobs.messages import ROOT, NoAnswer, say
from jobs.slurm.client.run import SlurmError, ask
from jobs.slurm.client.site import (
    MPI_LIST,
    SCONTROL,
    SINFO,
    Ask,
    Nodes,
    max_array_size,
    partitions,
    read_config,
    read_sinfo,
)
from train.errors import ConfigError
from train.record.atomic import write_atomically

#: Of one job, where the partition allows more: enough for most cells, short enough to start soon.
_TIME_MIN = 240
#: Ranks of a node without GPUs: each gets several cores where there are.
_CPU_RANKS = 4
#: Slurm gives no job all that a node says it has, where the site keeps some for the system.
_MEMORY_SHARE = 0.9
#: RealMemory is 1 where nobody set it.
_LEAST_MEMORY_MB = 500
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_NO_WORDS = ("null", "true", "false")  # what YAML takes for something else
_AMD = re.compile(r"mi\d+|amd|radeon|instinct", re.IGNORECASE)


@dataclass(frozen=True)
class FoundSite:
    name: str  # of the cluster, fit for a file
    text: str  # of the site file
    summary: tuple[str, ...]  # what to tell the user


def find_site(ask: Ask, *, slurm_conf: str | None = None) -> FoundSite:
    """Ask sinfo, scontrol and srun once each. The same answers give the same text.

    ``slurm_conf``: the caller's SLURM_CONF, so that jobs find the cluster that answered.

    Raises:
        ConfigError: no partition takes jobs.
    """
    nodes = read_sinfo(ask(SINFO))
    config = read_config(ask(SCONTROL))
    pmix = "pmix" in ask(MPI_LIST).split()
    chosen = _partition(nodes)
    kind = _commonest([group for group in nodes if group.partition == chosen.partition])
    cluster = config.get("ClusterName", "cluster")
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", cluster) or "cluster"
    lines = [*_head(cluster), *_asking(chosen, kind, nodes, config), *_launching(pmix, kind)]
    if slurm_conf is not None:
        lines += ["", _line("slurm_conf", slurm_conf, "SLURM_CONF")]
    return FoundSite(name, "\n".join(lines) + "\n", tuple(_summary(chosen, kind, nodes, pmix)))


def _partition(nodes: Sequence[Nodes]) -> Nodes:
    """The default partition, or the largest that takes jobs."""
    open_ones = [group for group in nodes if group.up]
    if not open_ones:
        raise ConfigError(
            f"no partition of this cluster takes jobs now (sinfo: {', '.join(partitions(nodes))}); "
            "write a site file (jobs/sites/cpu.yaml is an example) and name it with SITE="
        )
    return max(open_ones, key=lambda group: (group.default, group.count))


def _commonest(groups: Sequence[Nodes]) -> Nodes:
    """Nodes with GPUs before those without, then the kind of which there are most."""
    return max(groups, key=lambda group: (group.gpus_of(None) > 0, group.count))


def _gpus(kind: Nodes) -> tuple[str, int]:
    return max(kind.gpus, key=lambda item: item[1], default=("", 0))


def _head(cluster: str) -> Iterator[str]:
    yield f"# The cluster {cluster!r} as SITE=auto found it; not written anew, so change it freely."
    yield "# What is left out is not asked for. All keys, with their defaults: jobs/config/site.py"
    yield _line("title", f"{cluster}, found by SITE=auto")


def _asking(
    chosen: Nodes, kind: Nodes, nodes: Sequence[Nodes], config: dict[str, str]
) -> Iterator[str]:
    gpu_type, gpus = _gpus(kind)
    ranks = gpus or min(_CPU_RANKS, kind.cpus)
    yield ""
    why = "the default one" if chosen.default else "the largest that is up; none is the default"
    yield _line("partition", chosen.partition, f"sinfo: {why}")
    if others := _with_gpus(nodes, chosen, gpus):
        yield f"# GPUs are in partition: {', '.join(others)}"
    yield "# account: my_project   # where jobs need one: sacctmgr show assoc user=$USER"
    if gpus:
        yield _line("ranks_per_node", ranks, "sinfo: GPUs of a node")
        yield _line("gpus", "gres")
        types = {name for group in nodes if group.partition == chosen.partition
                 for name, _ in group.gpus}  # fmt: skip
        if gpu_type and len(types) > 1:
            yield _line("gpu_type", gpu_type, f"of {', '.join(sorted(types))}")
    else:
        yield _line("ranks_per_node", ranks, "sinfo: no GPUs; ranks compute on CPU cores")
    each = max(1, kind.cpus // ranks)
    yield _line("cpus_per_rank", each, f"sinfo: {kind.cpus} CPUs of a node / {ranks}")
    if kind.memory_mb >= _LEAST_MEMORY_MB:
        memory = int(kind.memory_mb * _MEMORY_SHARE / ranks / 1024 * 10) / 10
        source = f"sinfo: {_MEMORY_SHARE:.0%} of {kind.memory_mb:,} MB / {ranks}"
        yield _line("mem_per_rank_gb", memory, source)
    minutes = int(min(_TIME_MIN, max(1, chosen.time_limit_min)))
    limit = f"{chosen.time_limit_min:,.0f}".replace("inf", "infinite")
    yield _line("time_min", minutes, f"of one job; the partition's limit: {limit}")
    if chosen.job_nodes != float("inf"):
        yield _line("max_nodes", int(chosen.job_nodes), "sinfo: nodes of one job")
    if (size := max_array_size(config)) is not None and size >= 1:
        yield _line("array_limit", size, "scontrol show config: MaxArraySize")


def _launching(pmix: bool, kind: Nodes) -> Iterator[str]:
    gpu_type, gpus = _gpus(kind)
    yield ""
    if pmix:
        yield _line("mpi", "pmix", "srun --mpi=list names it")
    else:
        yield _line("mpi", "gloo", "srun --mpi=list names no pmix")
    yield "# interface: eth0       # where ranks should talk: ip -brief address, on a node"
    yield _line("image", "gpu" if gpus else "cpu", "make image builds it")
    if gpus:
        amd = _AMD.search(gpu_type) is not None
        yield _line("gpu_support", "rocm" if amd else "nv", "apptainer exec --nv or --rocm")


def _summary(chosen: Nodes, kind: Nodes, nodes: Sequence[Nodes], pmix: bool) -> Iterator[str]:
    gpu_type, gpus = _gpus(kind)
    has = f"{gpus} GPUs {gpu_type}".strip() if gpus else "no GPU"
    total = sum(group.count for group in nodes if group.partition == chosen.partition)
    yield (
        f"partition {chosen.partition}: {total} nodes, {has} and {kind.cpus} CPUs each; "
        f"ranks meet by {'PMIx' if pmix else 'Gloo'}"
    )
    if others := _with_gpus(nodes, chosen, gpus):
        yield f"there are GPUs in partition {', '.join(others)}: name one in the site file"


def _with_gpus(nodes: Sequence[Nodes], chosen: Nodes, gpus: int) -> list[str]:
    """Where GPUs are, if the chosen partition has none."""
    found = [group for group in nodes if group.up and group.gpus_of(None)]
    return [] if gpus else [name for name in partitions(found) if name != chosen.partition]


def _line(key: str, value: Any, comment: str = "") -> str:
    """``key: value  # comment``; text as YAML reads it back whatever signs it has."""
    shown = value
    if isinstance(value, str) and (_WORD.fullmatch(value) is None or value.lower() in _NO_WORDS):
        shown = json.dumps(value, ensure_ascii=False)
    text = f"{key}: {shown}"
    return f"{text:<24}# {comment}" if comment else text


PATIENCE_S = 60.0
#: Either of them, even where this user may not run it, is a sign of Slurm; another package has a
#: sinfo, too.
PROGRAMS = ("srun", "sbatch")
#: How they end where there is no slurm.conf and the name service knows no controller to ask for one
#: (tried with 22.05 and 24.11). The last words alone would not do: a login node whose controller
#: does not answer, or refuses it (munge), ends with them, too, and so does one whose name service
#: is down.
_NO_CONFIGURATION = (
    "DNS SRV lookup failed",
    "Could not establish a configuration source",
)
_NO_SUCH_NAME = ("Unknown host", "No address associated with name")


def site_for(name: str, folder: Path = SITES) -> NamedSite | None:
    """The site that SITE= names; None for this machine.

    ``auto`` is the cluster that answers here, as its file in ``folder`` says; the first time, that
    file is written from what the cluster tells of itself.

    Raises:
        ConfigError: no such site, or an error in its file.
        NoAnswer: Slurm's programs are here and fail: whether there is a cluster is not known, and a
            login node is no place to train on unasked.
    """
    if name == LOCAL or (name == AUTO and not any(map(_is_installed, PROGRAMS))):
        return None
    if name != AUTO:
        return load_site(name, folder)
    conf = os.environ.get("SLURM_CONF")
    try:
        found = find_site(asker(conf), slurm_conf=conf)
    except SlurmError as error:
        if not _finds_no_configuration(error.came):
            raise NoAnswer(
                f"Slurm is here but gives no answer ({error}), so nothing was set up or run. Where "
                "this is a login node, try again later or tell its administrators; SITE=local runs "
                "on this very machine"
            ) from error
        say("Slurm's programs are here, but no configuration of a cluster: running on this machine")
        return None
    # never one of the examples beside it
    file = folder / f"auto-{found.name}.yaml"
    if not file.exists():
        write_atomically(file, found.text)
        say(f"found a cluster and wrote {file}: look it over, change what is wrong")
        for line in found.summary:
            say(f"  {line}")
    return load_site(str(file))


def _is_installed(program: str) -> bool:
    return shutil.which(program, mode=os.F_OK) is not None


def _finds_no_configuration(said: str) -> bool:
    """Client packages alone, as on a laptop: there is no cluster that could be meant."""
    unnamed = any(f"res_nsearch error: {words}" in said for words in _NO_SUCH_NAME)
    return unnamed and all(words in said for words in _NO_CONFIGURATION)


def refuse_image(image: str, site: NamedSite) -> None:
    """Raises ConfigError where IMAGE= would be left out of account."""
    if image:
        raise ConfigError(
            f"IMAGE={image} is for ranks on this machine: say SITE=local, too. The image of the "
            f"cluster's jobs is the key image: of {site.source}"
        )


def asker(slurm_conf: str | None) -> Callable[[Sequence[str]], str]:
    """Ask Slurm one question; its refusal counts as no answer.

    The function raises SlurmError.
    """

    def question(argv: Sequence[str]) -> str:
        answer = ask(argv, patience_s=PATIENCE_S, slurm_conf=slurm_conf)
        if answer.code != 0:
            raise SlurmError(" ".join(argv), answer.words, passing=False)
        # srun of older Slurms lists what it can launch with among its messages
        return answer.out if answer.out.strip() else answer.err

    return question


def become() -> None:
    """Run this very command once more, on the practice cluster's login node as its user, because
    containers refuse to start as root there. Does not return."""
    argv = [sys.executable, str(ROOT / "containers" / "practice"), "login", "--"]
    argv += [sys.executable, "-m", "jobs", *sys.argv[1:]]
    os.chdir(ROOT)
    os.execv(sys.executable, argv)  # noqa: S606


def become_owner(folder: Path, known: Path = SITES) -> None:
    """Root asks about a sweep of the practice cluster's user: only that user's jobs count."""
    if os.geteuid() == 0 and folder.exists() and owner_of(folder) in users_of(known):
        become()


def owner_of(folder: Path) -> str | None:
    try:
        return folder.owner()
    except KeyError:  # an id without a name
        return None


def users_of(known: Path) -> set[str]:
    """Whose jobs root's sweeps become, on any site."""
    found = set()
    for name in site_names(known):
        with suppress(ConfigError):  # a broken file of another site is no matter here
            if (user := load_site(name, known).site.user) is not None:
                found.add(user)
    return found


def is_anothers(site: NamedSite) -> bool:
    """Whether root asks for what the practice cluster's user is to do."""
    return site.site.user is not None and os.geteuid() == 0


def hand_over(site: NamedSite, *folders: Path) -> None:
    """Make the folders that user's, and this command once more as that user; does not return.

    Raises:
        ConfigError: there is no such user.
    """
    assert site.site.user is not None
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        owner = pwd.getpwnam(site.site.user)
    except KeyError:
        raise ConfigError(
            f"{site.source}: there is no user {site.site.user!r}: make cluster makes the practice "
            "user"
        ) from None
    for folder in folders:
        give(folder, owner.pw_uid, owner.pw_gid)
    become()


def give(folder: Path, user: int, group: int) -> None:
    """Make all below a folder another user's: never what a link leads to, even one that is put
    there meanwhile, because names are looked up in folders that are held open."""
    for _, folders, files, handle in os.fwalk(folder):
        for name in (*folders, *files):
            os.chown(name, user, group, dir_fd=handle, follow_symlinks=False)
        os.fchown(handle, user, group)
