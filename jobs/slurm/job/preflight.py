"""The job that goes first: do Slurm, the container and the ranks work together?

It runs through the same launch line as cells do. Arrays depend on its good end, so a failure holds
the sweep.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.cell.lock import SWEEP_LOCK
from jobs.cell.stop import Reason, stopped_by_signals
from jobs.slurm.job.allocation import WARNINGS, Allocation
from jobs.slurm.job.step import step_line
from jobs.slurm.job.step_failure import MEMORY, MORE_MEMORY, absent_source, launch_troubles
from jobs.slurm.job.step_ranks import SRUN_LOG, StepLine, StepRanks
from jobs.slurm.job.task import (
    REPORT_NAME,
    START_S,
    PreflightReport,
    PreflightTask,
    Problem,
    minutes_for,
)
from train.distributed.preflight.report import RankPreflight, problems, read_reports, time_over
from train.interconnect.record import Trouble
from train.record.atomic import write_atomically
from train.record.cell_folder import last_words
from train.record.lock import LOCK_NAME, hold, holder, seen_here


def run_preflight(payload: dict[str, Any]) -> None:
    """On the first node. Ends with exit code 1 when the sweep is to be held."""
    task = PreflightTask.model_validate(payload).on_node(os.environ)
    allocation = Allocation.read(os.environ, minutes_for(task.site), task.site)
    folder = Path(task.folder)
    ranks = StepRanks(folder / SRUN_LOG)
    # Slurm's warning is none of this job's business, and would end it
    with stopped_by_signals() as stop, stopped_by_signals(signals=WARNINGS), ExitStack() as stack:
        with suppress(OSError):  # then ranks cannot lock it, either, and say so
            stack.enter_context(hold(folder, job=allocation.job))
        ours, locks = holder(folder), seen_here(Path(task.sweep or folder), SWEEP_LOCK)
        line = _launch(task, allocation, ours.machine if ours else "")
        ended = ranks.run(line, task.size, stop, task.site.preflight_s + START_S)
    if stop.reason and ranks.code != 0:  # what its ranks lacked is no fault of the node
        sys.exit(f"[preflight] ended before its ranks were: {stop.reason.text}")
    reports = read_reports(folder)
    report = PreflightReport(
        job=allocation.job,
        at=datetime.now(UTC),
        nodes=tuple(sorted({r.host for r in reports})),
        ranks_per_node=task.ranks_per_node,
        versions=dict(reports[0].versions) if reports else {},
        problems=_problems(task, ranks, reports, ended),
        locks=(
            *locks,
            *{(ours.machine, report.lock) for report in reports if ours and report.lock},
        ),
    )
    write_atomically(folder / REPORT_NAME, report.model_dump_json(indent=2) + "\n")
    for problem in report.problems:
        print(f"[preflight] {problem}", flush=True)
    if not report.ok:
        sys.exit(1)
    print(f"[preflight] passed: {', '.join(report.nodes)}", flush=True)


def _launch(task: PreflightTask, allocation: Allocation, machine: str) -> StepLine:
    site, folder = task.site, Path(task.folder)
    rank = ["-m", "train.distributed.preflight", "--out", task.folder, "--world", str(task.size)]
    rank += ["--limit-s", str(site.preflight_s)]
    for need in task.every_need:
        rank += ["--need", need.what, need.use, need.path]
    rank += ["--lock", str(folder / LOCK_NAME), machine]
    rank += [] if site.interface is None else ["--interface", site.interface]
    rank += [] if site.gpu_support == "none" else ["--gpu"]
    return step_line(
        task,
        rank,
        logs=folder,
        meeting=folder / f"rendezvous-{allocation.job}-{allocation.restarts}",
        all_end=False,  # every rank is to tell what it finds, whatever becomes of the others
    )


def _problems(
    task: PreflightTask, ranks: StepRanks, reports: Sequence[RankPreflight], ended: Reason | None
) -> tuple[Problem, ...]:
    """What the ranks found; before it, if some could not start or were killed for their memory,
    what srun and the container said. ``ended``: why all ranks were ended, if they were."""
    killed = bool(ranks.code) and ranks.said.out_of_memory is not None
    cut = {r for r, end in ranks.ended.items() if ranks.asked_at and end.at >= ranks.asked_at}
    found = list(problems(reports, task.size, killed=killed, cut=cut))
    if cut and (ended or any(report.late for report in reports)):
        slow = time_over(reports, cut, task.site.preflight_s, last_words(ranks.log))
        found.append(("?", slow))
    findings = [Problem(node=host, **one.model_dump(exclude={"ok"})) for host, one in found]
    unexplained = bool(ranks.code) and not findings
    some = killed or unexplained or len(reports) < task.size
    troubles = launch_troubles(ranks) if some else []
    named = {trouble.node for trouble in troubles}
    told = cut | (set() if unexplained else {report.procid for report in reports})
    for rank, end in ranks.said.ends.items():
        if rank not in told and end.host not in named:
            words = f"rank {rank} ended with exit code {end.code}: {last_words(ranks.log_of(rank))}"
            troubles.append(Trouble(node=end.host, what="rank", found=words))
    starts = (_unstarted(task, trouble, ranks.log.parent) for trouble in troubles)
    return (*dict.fromkeys(starts), *findings)


def _unstarted(task: PreflightTask, trouble: Trouble, logs: Path) -> Problem:
    path = absent_source(trouble.found)
    check, found = trouble.what, trouble.found
    if check == MEMORY:
        expected, todo = "ranks that fit into the memory of their job", MORE_MEMORY
    elif path is None:
        expected = "the rank starts in the container"
        todo = f"fix the node or the site's file; see {logs}"
    else:
        named = (need.what for need in task.every_need if need.path == path)
        check, found = next(named, "a bind of the site file"), f"no {path}"
        expected = "it is on every node, as make plan lists it"
        todo = "mount or make it there, or keep that node out (`sbatch: {exclude: ...}`)"
    return Problem(node=trouble.node, check=check, found=found, expected=expected, fix=todo)
