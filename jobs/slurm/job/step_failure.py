"""What Slurm and the container runtime tell of a step's end that the ranks themselves cannot."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from jobs.slurm.client.run import is_away
from jobs.slurm.job.allocation import Allocation, not_answering
from jobs.slurm.job.step_ranks import SLURMSTEPD, StepRanks
from train.record.cell_folder import rank_file, read_failures, tail_of
from train.record.run import RECORD_NAME, RecordError, RunError, Status, read_record

#: Where an error is from when no rank was even started.
NOT_LAUNCHED = "srun"
#: ... and when a node failed.
NODE = "node "
#: Of a job that runs, with what it asked for: a controller that was restarted, and knows its jobs
#: and nodes in part only (seen with 22.05 and 24.11).
_RESTARTED = ("Invalid job id specified", "Invalid generic resource")
GO_ON = "make sweep goes on from its last checkpoint"


def verdict(cell: Path, ranks: StepRanks, allocation: Allocation) -> tuple[Status, RunError] | None:
    """Status and error of a step that did not end by its ranks' own doing; None: ask the ranks."""
    if lost := _lost(cell, ranks, allocation):
        return "lost", lost
    if any(not failure.consequence for failure in read_failures(cell)):
        return None
    if error := _not_launched(ranks):
        # the controller was away; or a job that was requeued was given a node that died and is not
        # yet known to be dead
        away = is_away(error.what) or any(words in error.what for words in _RESTARTED)
        told = away or allocation.restarts > 0 or bool(not_answering(allocation))
        return "lost" if told else "failed", error
    error = _out_of_memory(ranks) or _no_container(cell, ranks)
    return ("failed", error) if error else _ended_by_slurm(ranks)


def _ended_by_slurm(ranks: StepRanks) -> tuple[Status, RunError] | None:
    """The step alone was ended, not its job: scancel JOB.STEP, or a limit of the step's."""
    if not ranks.said.aborted or ranks.said.cancelled is None or ranks.asked_at is not None:
        return None
    status: Status = "timeout" if "TIME LIMIT" in ranks.said.cancelled else "cancelled"
    what = f"Slurm ended the ranks and not the job: {ranks.said.cancelled}"
    return status, RunError(
        what=what, where="the step", what_to_do=GO_ON, log_tail=tail_of(ranks.log)
    )


def _lost(cell: Path, ranks: StepRanks, allocation: Allocation) -> RunError | None:
    """A node that died: srun's word, or ranks of whose end no node told srun."""
    told = ranks.said.node_failure
    named = {end.rank for end in ranks.said.ends}
    silent = [rank for rank in range(ranks.size) if rank not in named]
    if told is None and (not silent or ranks.asked_at is None):
        return None
    failures = read_failures(cell)
    if told is None and (not failures or any(not failure.consequence for failure in failures)):
        return None
    who = ", ".join(str(rank) for rank in silent)
    what = f"a node failed ({told})" if told else f"rank {who} vanished without a word"
    nodes = not_answering(allocation)
    if nodes:
        what += f"; Slurm does not reach: {nodes}"
    names = [told] if told else [line.split()[0] for line in nodes.split(", ") if line]
    where = f"{NODE}{names[0]}" if len(names) == 1 else "a node of the job"
    return RunError(what=what, where=where, what_to_do=GO_ON, log_tail=tail_of(ranks.log))


def failed_node(cell: Path) -> str | None:
    """The node that failed under the cell's last attempt, where it is known."""
    with suppress(RecordError, OSError):
        record = read_record(cell / RECORD_NAME)
        if record.status == "lost" and record.error and record.error.where.startswith(NODE):
            name = record.error.where.removeprefix(NODE)
            return name if re.fullmatch(r"[\w.-]+", name) else None
    return None


def _out_of_memory(ranks: StepRanks) -> RunError | None:
    if not ranks.said.out_of_memory:
        return None
    rank = ranks.said.out_of_memory_rank
    if rank is None:
        killed = [end.rank for end in ranks.said.ends if "Out Of Memory" in end.text]
        rank = next(iter([*killed, *ranks.bad]), None)
    return RunError(
        what=f"out of memory: {ranks.said.out_of_memory}",
        where="the step" if rank is None else ranks.place(rank),
        what_to_do="ask for more memory with mem_per_rank_gb in the site's file, or make "
        "batch_per_rank smaller; then make sweep again",
        rank=rank,
        log_tail=tail_of(ranks.log),
    )


def _not_launched(ranks: StepRanks) -> RunError | None:
    if not ranks.said.launch_failure:
        return None
    return RunError(
        what=f"srun could not start the ranks: {ranks.said.launch_failure}",
        where=NOT_LAUNCHED,
        what_to_do=f"read {ranks.log}, mend the site's file or the node, then make sweep again",
        log_tail=tail_of(ranks.log),
    )


def _no_container(cell: Path, ranks: StepRanks) -> RunError | None:
    for rank in ranks.bad:
        log = rank_file(cell, rank, "log")
        if not rank_file(cell, rank, "beat").exists() and (text := container_failure(log)):
            return RunError(
                what=f"the container of rank {rank} did not start on {ranks.place(rank)}: {text}",
                where=ranks.place(rank),
                what_to_do="see that the image is there and whole on that node (compare its "
                "sha256), then make sweep again",
                rank=rank,
                log_tail=tail_of(log),
            )
    return None


def container_failure(log: Path) -> str | None:
    """The container runtime's last word in a rank's log, where it could not start."""
    for line in reversed(tail_of(log)):
        if line.startswith("FATAL"):
            return line.split(":", 1)[-1].strip()
        if line.startswith(SLURMSTEPD) and "execve(): " in line:  # not even the runtime is there
            return line.partition("execve(): ")[2].strip()
    return None
