"""What Slurm and the container runtime tell of a step's end that the ranks themselves cannot."""

from __future__ import annotations

from pathlib import Path

from jobs.cause import tail_of
from jobs.slurm.ranks import StepRanks
from train.record import RunError, Status
from train.traces import rank_file, read_failures

GO_ON = "make sweep goes on from its last checkpoint"


def verdict(cell: Path, ranks: StepRanks) -> tuple[Status, RunError] | None:
    """Status and error of a step that did not end by its ranks' own doing; None: ask the ranks."""
    said = ranks.said
    if said.node_failure:
        return "lost", RunError(
            what=f"a node failed under the job ({said.node_failure})",
            where=f"node {said.node_failure}", what_to_do=GO_ON, log_tail=tail_of(ranks.log),
        )  # fmt: skip
    if any(not failure.consequence for failure in read_failures(cell)):
        return None
    if said.out_of_memory:
        return "failed", RunError(
            what=f"out of memory: {said.out_of_memory}",
            where=_where(ranks),
            what_to_do="ask for more memory with mem_per_rank_gb in the site's file, or make "
            "batch_per_rank smaller; then make sweep again",
            rank=next(iter(ranks.bad), None),
            log_tail=tail_of(ranks.log),
        )
    if said.launch_failure:
        return "failed", RunError(
            what=f"srun could not start the ranks: {said.launch_failure}",
            where="srun",
            what_to_do=f"read {ranks.log}, mend the site's file or the node, then make sweep again",
            log_tail=tail_of(ranks.log),
        )
    for rank in ranks.bad:
        log = rank_file(cell, rank, "log")
        if not rank_file(cell, rank, "beat").exists() and (text := container_failure(log)):
            return "failed", RunError(
                what=f"the container of rank {rank} did not start on {ranks.place(rank)}: {text}",
                where=ranks.place(rank),
                what_to_do="see that the image is there and whole on that node (compare its "
                "sha256), then make sweep again",
                rank=rank,
                log_tail=tail_of(log),
            )
    return None


def _where(ranks: StepRanks) -> str:
    return next((ranks.place(rank) for rank in ranks.bad), "the step")


def container_failure(log: Path) -> str | None:
    """The container runtime's last word in a rank's log, where it could not start."""
    lines = [line for line in tail_of(log) if line.startswith("FATAL")]
    return lines[-1].split(":", 1)[-1].strip() if lines else None
