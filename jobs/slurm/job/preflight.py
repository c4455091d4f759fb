"""The job that goes first: is the seam between Slurm, the container and the ranks whole?

It runs on as many nodes as the sweep's largest cell, through the same launch line. Arrays depend on
its good end, so a failure holds the sweep.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.cell.container import IMAGE_PYTHON, NO_IMAGE
from jobs.cell.stop import Reason, stopped_by_signals
from jobs.slurm.arrays import NodeLayout
from jobs.slurm.job.allocation import Allocation, warned_by_signal
from jobs.slurm.job.step import GLOO, rank_base, step_argv, step_environment
from jobs.slurm.job.step_failure import container_failure
from jobs.slurm.job.step_ranks import SRUN_LOG, StepRanks
from jobs.slurm.job.task import (
    REPORT_NAME,
    START_S,
    PreflightReport,
    PreflightTask,
    Problem,
    container_at,
    minutes_for,
)
from train.config.datasets import FOLDER_PREFIX
from train.distributed.preflight.report import RankPreflight, problems, read_reports
from train.record.atomic import write_atomically
from train.record.cell_folder import tail_of


def run_preflight(told: dict[str, Any]) -> None:
    """On the first node. Ends with exit code 1 when the sweep is to be held."""
    task = PreflightTask.model_validate(told)
    allocation = Allocation.read(os.environ, minutes_for(task.site), task.site.slurm_conf)
    folder, shape = Path(task.folder), NodeLayout(task.nodes, task.ranks_per_node)
    began = time.monotonic()
    ranks = StepRanks(folder / SRUN_LOG)
    # Slurm's warning is none of this job's business, and would end it
    with stopped_by_signals() as stop, warned_by_signal():
        argv, settings = _launch(task, shape, folder, allocation)
        ranks.start(argv, rank_base(os.environ) | settings, shape.size)
        deadline = began + task.site.preflight_s + START_S

        def tick() -> Reason | None:
            late = Reason("timeout", "the preflight came to no end")
            return stop.reason or (late if time.monotonic() > deadline else None)

        try:
            ranks.watch(tick)
        finally:
            ranks.end()
    reports = read_reports(folder)
    report = PreflightReport(
        key=task.key,
        job=allocation.job,
        at=datetime.now(UTC),
        seconds=time.monotonic() - began,
        nodes=tuple(sorted({r.host for r in reports})),
        versions=dict(reports[0].versions) if reports else {},
        problems=_problems(folder, ranks, reports, shape.size),
    )
    write_atomically(folder / REPORT_NAME, report.model_dump_json(indent=2) + "\n")
    for problem in report.problems:
        print(f"[preflight] {problem}", flush=True)
    if not report.ok:
        sys.exit(1)
    print(f"[preflight] whole: {', '.join(report.nodes)}", flush=True)


def _launch(
    task: PreflightTask, shape: NodeLayout, folder: Path, allocation: Allocation
) -> tuple[list[str], dict[str, str]]:
    site = task.site
    ours = (task.root, task.data, task.store, task.folder, *task.folders)
    container = container_at(site, task.image, ours)
    python = sys.executable if task.image == NO_IMAGE else IMAGE_PYTHON
    rank = [
        python,
        "-m",
        "train.distributed.preflight",
        "--out",
        str(folder),
        "--world",
        str(shape.size),
    ]
    rank += ["--data", task.data, "--limit-s", str(site.preflight_s)]
    rank += ["--store", task.store]
    if task.folders:
        rank += ["--dataset", f"{FOLDER_PREFIX}{task.folders[0]}"]
    if site.interface is not None:
        rank += ["--interface", site.interface]
    if site.gpu_support != "none":
        rank.append("--gpu")
    meeting = folder / f"rendezvous-{allocation.job}-{allocation.restarts}"
    settings = step_environment(
        site, container, root=Path(task.root), rendezvous=meeting if site.mpi == GLOO else None
    )
    # every rank is to tell what it finds, whatever becomes of the others
    return step_argv(site, shape, container, rank, folder, all_end=False), settings


def _problems(
    folder: Path, ranks: StepRanks, reports: Sequence[RankPreflight], world: int
) -> tuple[Problem, ...]:
    """What the ranks found; where some could not even start, what srun and the container said."""
    found = [Problem(node=host, **finding.model_dump(exclude={"ok"}))
             for host, finding in problems(reports, world)]  # fmt: skip
    if len(reports) < world:
        found = launch_problems(folder, ranks) + found
    if ranks.code and not found:
        found = [_problem("?", "launch", f"srun ended with code {ranks.code}", folder)]
    return tuple(found)


def launch_problems(folder: Path, ranks: StepRanks) -> list[Problem]:
    """Why ranks did not start, as the container and srun say it, in ``folder``."""
    said = ranks.said
    found = [
        _problem(ranks.place(rank).removeprefix("node "), "container", text, folder)
        for rank in ranks.ended
        if (text := container_failure(folder / f"rank-{rank}.log"))
    ]
    if said.launch_failure:
        found.append(_problem("?", "launch", said.launch_failure, folder))
    if said.node_failure:
        found.append(_problem(said.node_failure, "node", "it failed under the job", folder))
    if not found and not said.ends:
        tail = " / ".join(tail_of(folder / SRUN_LOG)[-3:])
        found.append(_problem("?", "launch", tail or "srun said nothing", folder))
    return found


def _problem(node: str, check: str, found: str, folder: Path) -> Problem:
    return Problem(
        node=node, check=check, found=found, expected="the rank starts in the container",
        fix=f"mend the node or the site's file; see {folder}",
    )  # fmt: skip
