"""What the queue holds now: one squeue for all jobs of a sweep, and Slurm's words made plain."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jobs.slurm.commands import SlurmError, ask

#: The job waits; those of the second row until somebody releases them.
PENDING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED",
                     "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})  # fmt: skip
#: It has nodes, or is about to give them back: what it runs may still write.
RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT",
                     "RESIZING"})  # fmt: skip
#: It will not run again under this id unless it is requeued, and then it says so.
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY",
                   "PREEMPTED", "BOOT_FAIL", "DEADLINE", "REVOKED"})  # fmt: skip

#: Between fields and before each job: signs that neither reasons nor (newlines!) names hold.
FIELD, START = "\x1f", "\x1e"
_COLUMNS = ("%A", "%F", "%K", "%T", "%r", "%S", "%M", "%N", "%V", "%k", "%j")
FORMAT = START + FIELD.join(_COLUMNS)
_NOTHING = frozenset({"", "N/A", "n/a", "None", "(null)", "Unknown", "NONE"})


@dataclass(frozen=True)
class JobState:
    """One job, or one element of an array, as squeue sees it. Times are the cluster's local ones,
    as text (2026-11-21T15:28:11)."""

    job: str  # A_I for an element of array A, else J
    state: str  # Slurm's own word
    reason: str  # Slurm's own words; '' where it gives none
    start: str | None  # began then, or is expected to begin then
    elapsed: str  # as Slurm writes it: 1-02:03:04 or 3:04
    nodes: str  # as Slurm writes it: node[1-2]
    name: str
    restarts: int | None = None  # squeue's format has no field for it
    submitted: str | None = None
    comment: str = ""
    number: str = ""  # of this element alone; for scancel and logs A_I does as well

    @property
    def ended(self) -> bool:
        """Whether Slurm is done with it; a word that we do not know counts as alive."""
        return self.state in ENDED

    @property
    def waits(self) -> bool:
        return self.state in PENDING

    @property
    def array(self) -> str:
        """The id that sbatch gave: A of A_I, else J."""
        return self.job.partition("_")[0]


def squeue_argv(names: Sequence[str], user: int) -> list[str]:
    """Every job of the user under these names, array elements apart, those that ended too."""
    argv = ["squeue", "--noheader", "--array", "--states=all", f"--user={user}"]
    # squeue cuts its list at commas, and none of its options escapes one
    if not any("," in name for name in names):
        argv.append(f"--name={','.join(names)}")
    return [*argv, f"--format={FORMAT}"]


def query(
    names: str | Iterable[str],
    slurm_conf: str | None = None,
    *,
    user: int | None = None,
    patience_s: float = 0,
    timeout_s: float = 30,
) -> dict[str, JobState]:
    """All jobs under the name or names, by job id, in one call.

    Slurm forgets an ended job some minutes after its end (MinJobAge, often 300 s): a job that is
    not there is not one that never was. ``user``: whose jobs; None: our own.

    Raises:
        SlurmError: no answer, or one that cannot be read.
    """
    wanted = (names,) if isinstance(names, str) else tuple(names)
    argv = squeue_argv(wanted, os.getuid() if user is None else user)
    answer = ask(argv, patience_s=patience_s, timeout_s=timeout_s, slurm_conf=slurm_conf)
    jobs = parse(answer.out)
    # squeue ends with 0 even where it refuses its options (an unknown user)
    if answer.code != 0 or (not jobs and "error" in answer.err):
        raise SlurmError(" ".join(argv[:6]), answer.words, passing=False)
    return {job.job: job for job in jobs if job.name in wanted}


def parse(text: str) -> list[JobState]:
    """The jobs in squeue's answer.

    Raises:
        SlurmError: it is not in the format that was asked for.
    """
    # what is before the first job is no job: with several clusters, a line with the cluster's name
    return [_job(part.removesuffix("\n")) for part in text.split(START)[1:]]


def _job(text: str) -> JobState:
    fields = text.split(FIELD, len(_COLUMNS) - 1)
    if len(fields) != len(_COLUMNS):
        raise SlurmError("squeue", f"{len(fields)} fields found, {len(_COLUMNS)} expected in "
                         f"{text!r}", passing=False)  # fmt: skip
    number, array, index, state, reason, start, elapsed, nodes, submitted, comment, name = fields
    return JobState(
        job=f"{array}_{index}" if index.isdigit() else number,
        state=state,
        reason="" if reason in _NOTHING else reason,
        start=None if start in _NOTHING else start,
        elapsed=elapsed,
        nodes=nodes,
        name=name,
        submitted=None if submitted in _NOTHING else submitted,
        comment="" if comment in _NOTHING else comment,
        number=number,
    )
