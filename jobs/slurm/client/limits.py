"""sbatch's refusals: which of them pass by themselves, and which key of the site file is meant.

A refusal is permanent unless it is known to pass: a request that cannot be granted, tried again
and again, is never granted.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from contextlib import suppress

from jobs.config.site import Site
from jobs.slurm.client.run import SlurmError, ask, is_away
from jobs.slurm.client.site import out_of_use

#: Slurm's own limits on jobs in the queue: passes for a smaller array, or when jobs have ended.
_SUBMIT_LIMIT = re.compile(r"Max\w*Submit|SubmitJob|job submit limit|max\w* .{0,30}submit", re.I)
#: Slurm ends with this whatever the limit; as a rule the limit's name stands before it.
_ANY_LIMIT = re.compile(r"\(job submit limit, user's size and/or time limits\)")
_REASON = re.compile(r"\b(?:QOS|Assoc)[A-Z]\w+")
#: The controller takes no job of anybody now.
_BUSY = re.compile(r"temporarily unable to accept|resource temporarily unavailable|try again", re.I)
#: Words of sbatch -> keys of a site file; the first that fits counts.
_KEYS: tuple[tuple[str, str], ...] = (
    (r"wckey", "wckey"),
    (r"MaxWall|time limit|TimeLimit", "time_min"),
    (r"(QOS|Assoc)\w*Node", "max_nodes"),
    (r"(QOS|Assoc)\w*(Cpu|CPU)", "cpus_per_rank and max_nodes"),
    (r"(QOS|Assoc)\w*(GRES|Gres|Tres|TRES)", "ranks_per_node and max_nodes"),
    (r"(QOS|Assoc)\w*Mem", "mem_per_rank_gb"),
    (r"qos", "qos (or account)"),
    (r"account|assoc", "account (sacctmgr show assoc user=$USER lists yours)"),
    (r"partition", "partition"),
    (r"generic resource|gres|gpu", "gpus, gpu_type and ranks_per_node"),
    (r"memory", "mem_per_rank_gb"),
    (r"feature|constraint", "constraint"),
    (r"reservation", "reservation"),
    (r"array", "array_limit"),
    (r"processors|cpu|core", "cpus_per_rank and ranks_per_node"),
    (r"node", "ranks_per_node, cpus_per_rank, mem_per_rank_gb and max_nodes"),
    (r"licen[cs]e|option|argument", "sbatch"),
)


def is_submit_limit(said: str) -> bool:
    """Whether the user has, or would have, more jobs in the queue than allowed."""
    return _SUBMIT_LIMIT.search(_reason(said)) is not None


def _reason(said: str) -> str:
    return _ANY_LIMIT.sub("", said) if _REASON.search(said) else said


def is_unnamed_limit(said: str) -> bool:
    """Whether it may be any limit: of jobs, of their time, or of their size."""
    return _ANY_LIMIT.search(said) is not None and _REASON.search(said) is None


def is_dependency(said: str) -> bool:
    """Whether the job that was to end first is not known any more."""
    return "dependency" in said.lower()


def is_passing(said: str) -> bool:
    """Whether the very same request may be granted a little later."""
    return is_away(said) or _BUSY.search(said) is not None


def limit_in(said: str) -> int | None:
    """The number of a limit, where the refusal names it."""
    words = r"(?:limit|maximum|at most|no more than|up to|max)\b[^\d\n]{0,40}(\d+)"
    found = re.search(words, said, re.IGNORECASE) if is_submit_limit(said) else None
    return int(found[1]) if found else None


def advice(said: str, file: object) -> str:
    """What to do about a refusal. ``file``: the site's."""
    if is_unnamed_limit(said):
        return (
            "Slurm does not say which limit (sacctmgr show qos, sacctmgr show assoc user=$USER): "
            f"look at submit_limit, time_min and max_nodes in {file}"
        )
    if is_submit_limit(said):
        return (
            f"Set submit_limit: in {file} to the jobs that you may have in the queue (array "
            "elements counted): arrays are then cut by it, and the rest follows when there is room"
        )
    if is_dependency(said):
        return "The preflight job that the cells depend on no longer exists: make sweep again"
    key = next((k for words, k in _KEYS if re.search(words, _reason(said), re.IGNORECASE)), None)
    if key is None:
        return f"Change what {file} asks for, or ask the site's administrators"
    return f"Look at {key} in {file}"


_SACCTMGR = ("sacctmgr", "--noheader", "--parsable2", "show")


def submit_limit(said: str, site: Site, cluster: str | None = None) -> int | None:
    """How many jobs the user may have in the queue, after a refusal; None where nobody says.

    The smallest of the refusal's own number and those of the user's association, of its QoS, and
    of the partition's QoS.
    """
    found = [limit_in(said)]
    with suppress(KeyError):  # an id without a name has no associations either
        user = pwd.getpwuid(os.getuid()).pw_name
        account = site.account or _line([*_SACCTMGR, "user", user, "format=DefaultAccount"], site)
        mine = [*_SACCTMGR, "associations", f"user={user}"]
        mine += [f"account={account}"] if account else []
        mine += [f"cluster={cluster}"] if cluster else []
        names = [site.qos] if site.qos else _lines([*mine, "format=DefaultQOS"], site)
        names += _partition_qos(site)
        wanted = ",".join(sorted({name for name in names if name})) or "normal"
        kinds = "format=MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs"
        found += _numbers([*mine, "format=MaxSubmitJobs,GrpSubmitJobs"], site)
        found += _numbers([*_SACCTMGR, "qos", f"name={wanted}", kinds], site)
    return min([limit for limit in found if limit], default=None)


def _partition_qos(site: Site) -> list[str]:
    """Of the site's partition, or of the cluster's default one."""
    named = [] if site.partition is None else [site.partition.split(",")[0]]
    lines = _lines(["scontrol", "--all", "--oneliner", "show", "partition", *named], site)
    ours = [line for line in lines if named or " Default=YES" in line]
    return [name for line in ours for name in re.findall(r" QoS=(\S+)", line) if name != "N/A"]


def _line(argv: Sequence[str], site: Site) -> str:
    return next(iter(_lines(argv, site)), "")


def _numbers(argv: Sequence[str], site: Site) -> list[int]:
    fields = [field for line in _lines(argv, site) for field in line.split("|")]
    return [int(field) for field in fields if field.isdigit()]


def _lines(argv: Sequence[str], site: Site) -> list[str]:
    with suppress(SlurmError):  # no accounts are kept
        answer = ask(argv, patience_s=0, slurm_conf=site.slurm_conf)
        return [line.strip() for line in answer.out.splitlines()] if answer.code == 0 else []
    return []


def usable_nodes(site: Site) -> set[str]:
    """Nodes of the site's partition that take jobs; none where Slurm does not say."""
    argv = ["sinfo", "--all", "--noheader", "--Node", "--format=%N %T"]
    argv += [f"--partition={site.partition}"] if site.partition else []
    lines = [line.split() for line in _lines(argv, site)]
    fit = [line for line in lines if len(line) == 2 and not line[1].endswith("*")]
    return {name for name, state in fit if not out_of_use(state)}
