"""A job whose cells are not done when it ends: run again by Slurm, where that is of use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from jobs.cell.stop import Stop
from jobs.slurm.client.nodes import usable_nodes
from jobs.slurm.client.run import SlurmError, run
from jobs.slurm.job.allocation import Allocation, excluded, not_answering
from jobs.slurm.job.step_failure import NOT_LAUNCHED, failed_node
from jobs.slurm.job.task import JobTask
from train.errors import Unreadable
from train.record.cell_folder import earlier_attempts
from train.record.run import RECORD_NAME, RecordError, read_record

#: A job that is requeued over and over without end is a fault; a long cell needs a few.
MOST_RESTARTS = 100
#: A job that asked to be requeued is ended by Slurm within this time.
REQUEUE_S = 60.0
MOST_NODE_FAILURES = 4
#: Slurm's own patience with a silent node (SlurmdTimeout) is 300 s at most sites, and a requeued
#: job waits 2 minutes there: so many tries with this pause between them are enough.
SEEN_S = 60.0
ASK_S = 5.0
#: A controller that is restarted is back by then, as a rule.
AWAY_S = 300.0
EXCLUDE_TRIES = 8
NOT_BEGUN = "not begun"


class Ran(NamedTuple):
    """What came of one cell in this job."""

    status: str
    epochs: int = 0  # done in this job


def go_on(
    task: JobTask, allocation: Allocation, ran: Mapping[str, Ran], stop: Stop, *, warned: bool
) -> None:
    """Ask for the same job again where that is of use, and wait to be ended by Slurm for it.

    ``warned``: Slurm has warned this start of the job.
    """
    if stop.reason is not None:
        return
    if not _may_requeue(task, allocation, ran):
        if task.site.requeue and (warned or allocation.restarts > 0):
            _end_for_good(allocation)
        return
    lost = [name for name, one in ran.items() if one.status == "lost"]
    if lost and not any(map(_was_not_launched, lost)):
        _wait_until_seen(allocation, stop)
    if stop.reason is None:
        failed = {node for name in lost if (node := failed_node(Path(name)))}
        _requeue(task, allocation, stop, failed)


def _may_requeue(task: JobTask, allocation: Allocation, ran: Mapping[str, Ran]) -> bool:
    """Whether the same job, run again, is of use: cells whose time was over, or whose node died."""
    ends = {ran[name].status if name in ran else NOT_BEGUN for name in task.cells}
    if not task.site.requeue or allocation.restarts >= MOST_RESTARTS:
        return False
    if "lost" in ends and max(map(_lost_in_a_row, task.cells)) < MOST_NODE_FAILURES:
        return True
    if not ends & {"timeout", "preempted", NOT_BEGUN}:
        return False
    if not any(one.epochs for one in ran.values()):
        log("not one epoch was done in this job's time: it is not requeued")
        return False
    return True


def _was_not_launched(cell: str) -> bool:
    """Slurm itself is at fault right after a requeue, which passes: nothing is to be waited for."""
    with suppress(RecordError, Unreadable):
        error = read_record(Path(cell) / RECORD_NAME).error
        return error is not None and error.where == NOT_LAUNCHED
    return False


def _lost_in_a_row(cell: str) -> int:
    with suppress(Unreadable):
        statuses = [attempt.status for attempt in earlier_attempts(Path(cell))]
        return len(list(takewhile(lambda status: status == "lost", reversed(statuses))))
    return 0


def _wait_until_seen(allocation: Allocation, stop: Stop) -> None:
    """Until Slurm knows of the dead node, too: it would give it to the same job again. It may end
    and requeue this job by itself then."""
    deadline = time.monotonic() + SEEN_S
    while stop.reason is None and time.monotonic() < deadline:
        if nodes := not_answering(allocation):
            log(f"Slurm does not reach {nodes}")
            return
        _wait(stop, ASK_S)


def _wait(stop: Stop, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while stop.reason is None and time.monotonic() < deadline:
        time.sleep(0.2)


def _requeue(task: JobTask, allocation: Allocation, stop: Stop, failed: set[str]) -> None:
    """Ask Slurm for the same job once more, on other nodes than those that ``failed``, and wait to
    be ended by it."""
    refusal: str | None = "the controller does not answer"
    argv = ["scontrol", "requeue", allocation.job]
    deadline = time.monotonic() + AWAY_S
    while stop.reason is None and time.monotonic() < deadline:
        try:
            answer = run(argv, slurm_conf=allocation.slurm_conf)
            refusal = answer.err.strip() if answer.code else None
            break
        except SlurmError as error:
            refusal = str(error)
            if not error.passing:
                break
        _wait(stop, ASK_S)
    if refusal:
        log(f"cannot be requeued ({refusal}): make sweep goes on from the checkpoint")
        return
    log("requeued: goes on from the checkpoint")
    if failed and len(usable_nodes(task.site) - failed) >= task.nodes:
        _exclude(allocation, ",".join(sorted(failed)))
    _wait(stop, REQUEUE_S)


def _exclude(allocation: Allocation, nodes: str) -> None:
    """Only a job that waits can be told so: not before its requeue, and soon after. The signal that
    ends this start of the job is under way."""
    earlier = excluded(allocation)
    wanted = f"ExcNodeList={earlier},{nodes}" if earlier else f"ExcNodeList={nodes}"
    argv = ["scontrol", "update", f"JobId={allocation.job}", wanted]
    for _ in range(EXCLUDE_TRIES):
        with suppress(SlurmError):
            if run(argv, timeout_s=ASK_S, slurm_conf=allocation.slurm_conf).code == 0:
                log(f"goes on without {nodes}")
                return
        time.sleep(0.5)
    log(f"Slurm may give {nodes} to this job once more")


def _end_for_good(allocation: Allocation) -> None:
    """Keep Slurm from starting a job again that is done.

    Slurm 24.05 and later take a job that ends after a preemption's warning for a preempted one and
    requeue it, whatever its exit code. That lasts until it has ended once by itself: also after the
    requeue by which the preemption itself ended (seen with 24.11.5: `Restarts` is 2, and the sweep
    waits for a start that has nothing to do; 22.05.8 has 1). With its requeue off such a job ends
    in state PREEMPTED; what came of its cells stands in their records.
    """
    try:
        run(["scontrol", "update", f"JobId={allocation.job}", "Requeue=0"],
            slurm_conf=allocation.slurm_conf)  # fmt: skip
    except SlurmError as error:
        log(f"Slurm may start this job once more, with nothing to do ({error})")


def log(text: str) -> None:
    """For the supervisor's log."""
    print(f"[supervisor] {text}", flush=True)
