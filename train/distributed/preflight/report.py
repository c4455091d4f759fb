"""What each rank of a preflight job writes down; read by whoever decides whether a sweep may start.

Loads neither TensorFlow nor Horovod.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, ValidationError

from train.config.frozen import Frozen

#: How far a rank came; a report whose last phase is not ``done`` names what it died in.
Phase = Literal[
    "light checks", "importing", "looking at the other nodes", "meeting the others", "all-reduce",
    "done",
]  # fmt: skip

#: In these, Horovod's native code ends a rank whose peers do not come.
TOGETHER = ("meeting the others", "all-reduce")
#: Name of the finding of a rank that ended itself, since others did not come.
LATE = "time"

#: Findings about the network that hold nothing by themselves, where MPI may take another one.
SUSPECTED = ("shared address", "MTU", "path")


class Finding(Frozen):
    check: str
    ok: bool | None  # None: could not be told, which is no pass
    found: str
    expected: str
    fix: str  # empty where there is nothing to do


class RankPreflight(Frozen):
    """rank-PROCID.json, or rank-HOST-RANDOM.json where a rank does not know its number."""

    schema_version: Literal[1] = 1
    host: str
    procid: int | None  # as srun says
    phase: Phase
    late: bool  # ended by its own time limit, in that phase
    started_at: AwareDatetime
    duration_s: float
    pmix: bool  # its variables are there
    versions: dict[str, str]  # python, tensorflow, tensorflow-addons, horovod, openmpi, pmix
    built: dict[str, bool]  # Horovod's build: mpi, gloo, nccl, cuda, rocm
    launcher: str | None
    size: int | None  # as Horovod says, like the three below
    rank: int | None
    local_rank: int | None
    cross_rank: int | None
    interface: str | None  # that ranks were told to use, or chose
    carried: dict[str, int]  # network interface -> bytes in and out during the all-reduce
    gpus: tuple[str, ...]
    driver: str | None
    visible_devices: str | None  # CUDA_VISIBLE_DEVICES
    lock: str = ""  # boot id and device, where it saw the lock of another node's
    findings: tuple[Finding, ...]

    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.ok is False)


def read_reports(folder: Path) -> tuple[RankPreflight, ...]:
    """All reports of a preflight job, by number, then host; a file that is none is left out (the
    rank is missing then, which counts as a failure)."""
    found = []
    for file in folder.glob("rank-*.json"):
        try:
            found.append(RankPreflight.model_validate_json(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, ValidationError):
            continue
    return tuple(sorted(found, key=lambda r: (r.procid is None, r.procid or 0, r.host)))


def problems(
    reports: Sequence[RankPreflight],
    world: int,
    *,
    killed: bool = False,
    cut: Collection[int] = (),
) -> tuple[tuple[str, Finding], ...]:
    """Everything that holds a sweep, as (host, finding); equal findings of one host once.

    A rank that wrote nothing, or came to no end, is a problem, too; that a rank waited in vain, or
    died where all need each other, is told only where no other finding can be the reason; of ranks
    that Slurm ``killed``, which says why, only what they had found; so it is with the ranks ``cut``
    short by whoever started them.
    """
    failed = [(report.host, finding) for report in reports for finding in report.failed()]
    causes = [(host, finding) for host, finding in failed if finding.check != LATE]
    if killed:
        return tuple(dict.fromkeys(causes))
    ended = [(r.host, r, _unended(r)) for r in reports
             if r.phase != "done" and not r.failed() and r.procid not in cut]  # fmt: skip
    causes += [(host, finding) for host, r, finding in ended if r.phase not in TOGETHER]
    if len(reports) + len(set(cut) - {r.procid for r in reports}) < world:
        causes.append(("?", _missing(reports, world)))
    if causes or failed or ended:  # what need not be the cause, but then is the likely one
        causes += [(r.host, f) for r in reports for f in r.findings if f.check in SUSPECTED
                   and f.ok is None]  # fmt: skip
    died = [(host, finding) for host, _, finding in ended]
    return tuple(dict.fromkeys(causes or died or failed))


def _unended(report: RankPreflight) -> Finding:
    return Finding(
        check="end",
        ok=False,
        found=f"a rank that died in its phase {report.phase!r}",
        expected="a rank that finishes",
        fix="read the job's log; when MPI aborts here, /tmp is often not writable, or its PMIx is "
        "not Slurm's (`srun --mpi=list`)",
    )


def _missing(reports: Sequence[RankPreflight], world: int) -> Finding:
    hosts = ", ".join(sorted({report.host for report in reports})) or "none"
    return Finding(
        check="ranks",
        ok=False,
        found=f"{len(reports)} of {world} ranks wrote a report (hosts: {hosts})",
        expected=f"{world} reports",
        fix="read the logs of the other ranks: often the image, the bind of the checkout or the "
        "results folder is missing on their nodes",
    )


def time_over(
    reports: Sequence[RankPreflight], cut: Collection[int], preflight_s: int, srun: str
) -> Finding:
    """Of ranks that were ended when their time was over, which says nothing against their image.

    ``srun``: what srun printed last.
    """
    phases = {report.procid: report.phase for report in reports}
    words = [f"rank {rank}: {phases.get(rank, 'no report yet')}" for rank in sorted(cut)]
    more = f" and {len(words) - 4} more" if len(words) > 4 else ""
    return Finding(
        check="time limit",
        ok=False,
        found=f"ranks that were ended when their time was over: {', '.join(words[:4])}{more}; "
        f"srun: {srun}",
        expected=f"every rank starts, and ends within preflight_s, {preflight_s} s",
        fix="raise preflight_s in the site file if the image or a file system is slow; else read "
        "the job's log",
    )
