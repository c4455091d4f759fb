"""Runs one cell with ranks on this machine; called by submitit, in a process of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from jobs.cell.attempt import Start, attend
from jobs.cell.launch import (
    CellTask,
    clean_environment,
    rank_environment,
    train_argv,
    with_processes,
)
from jobs.cell.lock import hold
from jobs.cell.missing_record import is_good, settle_lost
from jobs.cell.ranks import end_leftovers
from jobs.cell.stop import stopped_by_signals
from jobs.local.image import facts_inside
from jobs.local.ranks import Ranks
from jobs.messages import ROOT
from train.config.run import RunConfig, load_config
from train.distributed.awake import Awake
from train.record.cell_folder import CONFIG_NAME, rank_file


def run_cell(told: dict[str, Any]) -> str:
    """Run one cell and return the status of its record.

    Takes plain JSON values, so that the pickle holds no class of ours.
    """
    task = CellTask(**{**told, "cores": tuple(tuple(group) for group in told["cores"])})
    cell = Path(task.cell)
    # ignored (as some daemons leave it), it would make every rank seem to end well
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with (
        stopped_by_signals() as stop,
        hold(cell, lambda: stop.reason) as ours,
        Awake().kept() as awake,
    ):
        if not ours:
            return "cancelled"  # while waiting for another supervisor, which leaves the record
        end_leftovers(cell)
        config = load_config(cell / CONFIG_NAME)
        if is_good(cell, config):
            return "kept"
        settle_lost(cell, config)
        ranks = Ranks()
        start = Start(
            cell, config, ranks,
            begin=lambda attempt: _begin(task, config, attempt, ranks),
            stop=lambda: stop.reason,
            resume=task.resume,
            stall_s=task.stall_s,
            limit_s=task.limit_s,
            awake=awake,
        )  # fmt: skip
        return attend(start)


def _begin(task: CellTask, config: RunConfig, attempt: int, ranks: Ranks) -> None:
    base = clean_environment(os.environ)
    base.pop("CUDA_VISIBLE_DEVICES", None)  # submitit empties it; the task has the caller's
    if task.image is not None:
        base |= facts_inside(task.image, ROOT)
    task = with_processes(task, config.processes)
    argv = train_argv(task, attempt)
    for rank in range(config.processes):
        extra = rank_environment(task, rank, attempt=attempt, supervisor=os.getpid(), root=ROOT)
        ranks.start(argv, base | extra, rank_file(Path(task.cell), rank, "log"))
