"""Why a start on Slurm ended, where its ranks cannot tell: judges, asked one after another."""

from __future__ import annotations

import re
import time
from pathlib import Path

from jobs.cell.failure import Verdict
from jobs.cell.stop import Reason, Stop
from jobs.slurm.client.nodes import exclude_hint
from jobs.slurm.client.run import SlurmError, is_away
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.step_ranks import SLURMSTEPD, StepRanks
from train.interconnect.record import Trouble
from train.record.cell_folder import file_mark, last_words, rank_file, read_failures, tail_of
from train.record.run import RunError, Status

#: Signals reach ranks and supervisor in any order; the other one gets this long.
PATIENCE_S = 4.0
#: Where an error is from when no rank was even started.
NOT_LAUNCHED = "srun"
#: Of a job that runs, with what it asked for: a controller that was restarted, and knows its jobs
#: and nodes in part only (seen with 22.05 and 24.11).
_RESTARTED = ("Invalid job id specified", "Invalid generic resource")
GO_ON = "make sweep goes on from its last checkpoint"
#: What a trouble is about that is one of memory, and what to do.
MEMORY = "memory"
MORE_MEMORY = "ask for more memory with mem_per_rank_gb in the site's file"
#: State, reason and times of a job that is being ended -> what they make of a cell, and words.
_ENDS: tuple[tuple[str, Status, str], ...] = (
    (r"PreemptTime=\d", "preempted", "a job of higher priority got its nodes"),
    ("NODE_?FAIL", "lost", "a node of it failed"),
    (r"=PREEMPT", "preempted", "it was preempted"),
    ("=TIMEOUT|=TimeLimit", "timeout", "its time limit was reached"),
    ("OUT_?OF_?MEMORY", "failed", "it used more memory than it had asked for"),
    ("=CANCELLED", "cancelled", "it was cancelled"),
)


def why_stopped(
    stopped: Reason | None, ranks: StepRanks, allocation: Allocation, stop: Stop, warned: Stop
) -> Reason | None:
    """Why a start was really stopped. ``stopped``: why the supervisor ended the ranks."""
    if stopped is not None and stop.reason is None:
        return stopped  # our own watch had a reason
    if ranks.said.aborted:  # from outside, so a signal is to be expected here, too
        stop.wait(PATIENCE_S)
    if stop.reason is not None:
        return _why_ended(allocation, stop.reason)
    if warned.at is not None and allocation.is_early(warned.at):
        words = f"Slurm warned job {allocation.job} long before its time was over"
        return Reason("preempted", words)
    return None


def _why_ended(allocation: Allocation, by_signal: Reason) -> Reason:
    """Why Slurm ends this job: asked of the clock, and of Slurm itself."""
    job = allocation.job
    if time.time() > allocation.ends_at - 10:  # s: Slurm's clock is not exact
        return Reason("timeout", f"the job's time limit was reached (job {job})")
    facts = ""
    try:
        facts = " ".join(re.findall(r"\b(?:JobState|Reason|PreemptTime)=\S*", allocation.shown()))
    except SlurmError as error:
        if error.passing:
            return by_signal  # no answer, and no time for another question
    # a job that is being ended is COMPLETING there, and often without a reason
    for pattern, status, words in _ENDS:
        if re.search(pattern, facts, re.IGNORECASE):
            text = f"Slurm ended job {job}: {words} ({facts})"
            if status == "lost":
                down = ",".join(allocation.not_answering())
                text += exclude_hint(down or allocation.nodes, failed=bool(down))
            return Reason(status, text)
    if nodes := ",".join(allocation.not_answering()):
        words = f"Slurm ended job {job}: it does not reach {nodes}{exclude_hint(nodes)}"
        return Reason("lost", words)
    words = f"job {job} was ended before its time ({by_signal.text}): scancel, or the site"
    return Reason(by_signal.status, words)


def verdict(cell: Path, ranks: StepRanks, allocation: Allocation) -> Verdict | None:
    """Status and error of a step that did not end by its ranks' own doing; None: ask the ranks."""
    failures = read_failures(cell)
    explained = any(not failure.consequence for failure in failures)
    if lost := _node_failure(ranks, allocation, only_complaints=bool(failures) and not explained):
        return lost
    if explained:
        return None
    return (
        _not_launched(ranks, allocation)
        or _out_of_memory(ranks)
        or _no_container(cell, ranks)
        or _step_cancelled(ranks)
    )


def _node_failure(
    ranks: StepRanks, allocation: Allocation, *, only_complaints: bool
) -> Verdict | None:
    """A node that died: srun says so, or no node reported the end of some ranks while the others
    complain of their peers only."""
    dead = ranks.said.node_failure
    vanished = [str(rank) for rank in range(ranks.size) if rank not in ranks.said.ends]
    if dead is not None:
        what = f"a node failed ({dead})"
    elif vanished and ranks.asked_at is not None and only_complaints:
        what = f"rank {', '.join(vanished)} vanished: no node reported its end"
    else:
        return None
    down = allocation.not_answering()
    what += f"; Slurm does not reach: {', '.join(down)}" if down else ""
    names = down if dead in (None, "?") else [dead]
    where = f"node {names[0]}" if len(names) == 1 else "a node of the job"
    return "lost", _error(ranks.log, what, where, GO_ON + exclude_hint(",".join(names)))


def _not_launched(ranks: StepRanks, allocation: Allocation) -> Verdict | None:
    if (said := ranks.said.launch_failure) is None:
        return None
    # the controller was away; or a job that was requeued was given a node that died and is not yet
    # known to be dead
    away = is_away(said.rpartition(": ")[2]) or any(words in said for words in _RESTARTED)
    down = allocation.not_answering()
    passes = away or allocation.restarts > 0 or down
    what = f"srun could not start the ranks: {said}"
    todo = f"read {ranks.log}, fix the site's file or the node, then make sweep again"
    todo += exclude_hint(",".join(down or re.findall(r" failed on node ([^\s:]+):", said)))
    return "lost" if passes else "failed", _error(ranks.log, what, NOT_LAUNCHED, todo)


def _out_of_memory(ranks: StepRanks) -> Verdict | None:
    if (said := ranks.said.out_of_memory) is None:
        return None
    rank = _memory_rank(ranks)
    where = "the step" if rank is None else ranks.place(rank)
    todo = f"{MORE_MEMORY}, or make batch_per_rank smaller, then make sweep again"
    return "failed", _error(ranks.log, f"out of memory: {said}", where, todo, rank)


def _memory_rank(ranks: StepRanks) -> int | None:
    """The rank that used too much memory, as far as it is known."""
    rank = ranks.said.out_of_memory_rank
    return next(iter(ranks.bad), None) if rank is None else rank


def _no_container(cell: Path, ranks: StepRanks) -> Verdict | None:
    for rank in ranks.bad:
        log, place = rank_file(cell, rank, "log"), ranks.place(rank)
        if file_mark(rank_file(cell, rank, "beat")) is None and (said := container_failure(log)):
            what = f"the container of rank {rank} did not start on {place}: {said}"
            todo = "see that the image is there and undamaged on that node (compare its sha256)"
            if absent := absent_source(said):
                todo = f"make {absent} visible on that node, or keep the node out of the job"
            todo += ", then make sweep again"
            return "failed", _error(log, what, place, todo, rank)
    return None


def _step_cancelled(ranks: StepRanks) -> Verdict | None:
    """The step alone was ended, not its job: scancel JOB.STEP, or a limit of the step's."""
    said = ranks.said
    if not said.aborted or said.cancelled is None or ranks.asked_at is not None:
        return None
    status: Status = "timeout" if "TIME LIMIT" in said.cancelled else "cancelled"
    what = f"Slurm ended the ranks and not the job: {said.cancelled}"
    return status, _error(ranks.log, what, "the step", GO_ON)


def _error(log: Path, what: str, where: str, todo: str, rank: int | None = None) -> RunError:
    return RunError(what=what, where=where, what_to_do=todo, rank=rank, log_tail=tail_of(log))


def container_failure(log: Path) -> str | None:
    """The container runtime's last word in a rank's log, where it could not start."""
    for line in reversed(tail_of(log)):
        if line.startswith("FATAL"):
            return line.split(":", 1)[-1].strip()
        if line.startswith(SLURMSTEPD) and "execve(): " in line:  # not even the runtime is there
            return line.partition("execve(): ")[2].strip()
    return None


def absent_source(said: str) -> str | None:
    """The file or folder without which a container did not start on a node, as it says."""
    found = re.search(r"mount source (.+) doesn't exist", said)
    return found[1] if found else None


def launch_troubles(ranks: StepRanks) -> list[Trouble]:
    """Why ranks did not start or were killed, as the container and srun say it."""
    said = ranks.said
    troubles = [
        Trouble(node=ranks.place(rank).removeprefix("node "), what="container", found=words)
        for rank in ranks.ended
        if (words := container_failure(ranks.log_of(rank)))
    ]
    if said.launch_failure:
        troubles.append(Trouble(node="?", what="launch", found=said.launch_failure))
    if dead := said.node_failure:
        troubles.append(Trouble(node=dead, what="node", found="it failed under the job"))
    if said.out_of_memory:
        rank = _memory_rank(ranks)
        end = None if rank is None else said.ends.get(rank)
        node = "?" if end is None else end.host
        troubles.append(Trouble(node=node, what=MEMORY, found=said.out_of_memory))
    if not troubles and not said.ends and ranks.asked_at is None:
        found = f"srun ended with exit code {ranks.code}: {last_words(ranks.log)}"
        troubles.append(Trouble(node="?", what="launch", found=found))
    return troubles
