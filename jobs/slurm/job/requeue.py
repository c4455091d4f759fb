"""A job whose cell is not done when it ends: run again by Slurm, where that is of use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

from jobs.cell.stop import Stop
from jobs.slurm.client.run import SlurmError
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.step_failure import NOT_LAUNCHED
from train.record.run import RunRecord

#: A job that is requeued over and over without end is a fault; a long cell needs a few.
MOST_RESTARTS = 100
#: A job that asked to be requeued is ended by Slurm within this time.
REQUEUE_S = 60.0
#: Until SlurmdTimeout (300 s at most sites) Slurm may give a dead node to the same job again. A
#: requeued job waits 2 minutes there, and we wait up to NOTICE_S before each requeue: after the
#: fourth loss in a row the node should be known to be dead, so we give up.
MOST_NODE_FAILURES = 4
NOTICE_S = 60.0
#: Between two questions to Slurm.
ASK_S = 5.0
#: A controller that is restarted is back by then, as a rule.
AWAY_S = 300.0


@dataclass(frozen=True)
class CellEnd:
    """What came of the cell in this job."""

    status: str
    epochs: int = 0  # done in this job
    record: RunRecord | None = None  # of an attempt in this job
    why: str = ""  # it was not run

    @property
    def lost_a_node(self) -> bool:
        """Ranks that were not even launched are Slurm's own fault right after a requeue."""
        error = self.record.error if self.record else None
        return self.status == "lost" and (error is None or error.where != NOT_LAUNCHED)

    @property
    def lost_in_a_row(self) -> int:
        """Attempts with status lost at the end of the record, whatever their cause and job."""
        attempts = self.record.attempts if self.record else ()
        return len(list(takewhile(lambda attempt: attempt.status == "lost", reversed(attempts))))


def requeue(allocation: Allocation, end: CellEnd, stop: Stop, warned: Stop) -> None:
    """Ask for the same job again where that is of use, and wait to be ended by Slurm for it."""
    if stop.reason is not None:
        return
    if not _is_of_use(allocation, end):
        if allocation.site.requeue and (warned.at is not None or allocation.restarts > 0):
            _end_for_good(allocation)
        return
    if end.lost_a_node:
        # until Slurm knows of the dead node, too, which it would give to the same job again; it may
        # end and requeue this job by itself then
        for _ in _tries(stop, NOTICE_S):
            if nodes := allocation.not_answering():
                log(f"Slurm does not reach {', '.join(nodes)}")
                break
    if stop.reason is None and _is_granted(allocation, stop):
        stop.wait(REQUEUE_S)


def _is_of_use(allocation: Allocation, end: CellEnd) -> bool:
    """Whether the same job, run again, is of use: its time was over, or a node of it died."""
    if not allocation.site.requeue or allocation.restarts >= MOST_RESTARTS:
        return False
    if end.status == "lost":
        return end.lost_in_a_row < MOST_NODE_FAILURES
    if end.status not in ("timeout", "preempted"):
        return False
    if not end.epochs:
        log("not one epoch was done in this job's time: it is not requeued")
        return False
    return True


def _is_granted(allocation: Allocation, stop: Stop) -> bool:
    """Ask Slurm for the same job once more, until its controller answers; returns whether it may
    run it: the requeue itself ends this job, and its signal may come before the answer."""
    refusal = "the job is being ended"
    for _ in _tries(stop, AWAY_S):
        try:
            allocation.ask("scontrol", "requeue", allocation.job, timeout_s=30)
        except SlurmError as error:
            refusal = error.came
            if not error.passing:
                break
        else:
            log("requeued: goes on from the checkpoint")
            return True
    if stop.reason is not None:
        log(f"ended while it asked to be requeued ({refusal})")
        return True
    log(f"cannot be requeued ({refusal}): make sweep goes on from the checkpoint")
    return False


def _tries(stop: Stop, seconds: float) -> Iterator[None]:
    """One, and another after each pause, for so long, and until the job is stopped."""
    deadline = time.monotonic() + seconds
    while stop.reason is None and time.monotonic() < deadline:
        yield
        stop.wait(ASK_S)


def _end_for_good(allocation: Allocation) -> None:
    """Keep Slurm from starting a job again that is done.

    Slurm 24.05 and later take a job that ends after a preemption's warning for a preempted one and
    requeue it, whatever its exit code. The mark stays through the requeue that the preemption
    caused, until the job ends by itself: a finished second start would be started a third time
    (seen with 24.11.5: `Restarts` is 2; 22.05.8 has 1). With its requeue off such a job ends in
    state PREEMPTED; what came of its cell stands in its record.
    """
    try:
        allocation.ask("scontrol", "update", f"JobId={allocation.job}", "Requeue=0", timeout_s=30)
    except SlurmError as error:
        log(f"Slurm may start this job once more, with nothing to do ({error})")


def log(text: str) -> None:
    """For the supervisor's log."""
    with suppress(OSError):  # it is on the disk of the results, and ranks run on without it
        print(f"[supervisor] {text}", flush=True)
