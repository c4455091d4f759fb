"""What of the cluster bounds a submission beyond its site file: asked only where it matters."""

from __future__ import annotations

import getpass
from contextlib import suppress

from jobs.site import Site
from jobs.slurm.commands import SlurmError, ask
from jobs.slurm.facts import out_of_use
from jobs.slurm.refusals import limit_in


def submit_limit(said: str, site: Site) -> int | None:
    """How many jobs the user may have in the queue, after a refusal; None where nobody says.

    The smallest of the refusal's own number and those of the user's associations and QoS.
    """
    found = [limit_in(said), *_of_associations(site), *_of_qos(site)]
    return min((limit for limit in found if limit), default=None)


def _of_associations(site: Site) -> list[int]:
    user = getpass.getuser()
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={user}"]
    argv += [f"account={site.account}"] if site.account else []
    return _numbers([*argv, "format=MaxSubmitJobs"], site)


def _of_qos(site: Site) -> list[int]:
    """Of the named QoS, else of those that the user's associations have by default."""
    names = [site.qos] if site.qos else _lines(
        ["sacctmgr", "--noheader", "--parsable2", "show", "associations",
         f"user={getpass.getuser()}", "format=DefaultQOS"], site)  # fmt: skip
    wanted = ",".join(sorted({name for name in names if name})) or "normal"
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "qos", f"name={wanted}"]
    return _numbers([*argv, "format=MaxSubmitJobsPerUser"], site)


def _numbers(argv: list[str], site: Site) -> list[int]:
    return [int(line) for line in _lines(argv, site) if line.isdigit()]


def _lines(argv: list[str], site: Site) -> list[str]:
    with suppress(SlurmError):  # no accounts are kept
        answer = ask(argv, patience_s=0, slurm_conf=site.slurm_conf)
        return [line.strip() for line in answer.out.splitlines()] if answer.code == 0 else []
    return []


def usable_nodes(site: Site) -> set[str]:
    """Nodes of the site's partition that take jobs; none where Slurm does not say."""
    argv = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
    argv += [f"--partition={site.partition}"] if site.partition else []
    with suppress(SlurmError):
        answer = ask(argv, patience_s=5, slurm_conf=site.slurm_conf)
        lines = [line.split() for line in answer.out.splitlines()]
        fit = [line for line in lines if len(line) == 2 and not line[1].endswith("*")]
        return {name for name, state in fit if not out_of_use(state)}
    return set()
