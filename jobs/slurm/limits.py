"""What of the cluster bounds a submission beyond its site file: asked only where it matters."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from contextlib import suppress

from jobs.site import Site
from jobs.slurm.commands import SlurmError, ask
from jobs.slurm.facts import out_of_use
from jobs.slurm.refusals import limit_in

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
