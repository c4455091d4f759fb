"""Hand cells to submitit; the only file that imports it."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import submitit

from jobs.launch import CellTask
from jobs.supervisor import ROOT, run_cell

#: submitit's local jobs end after 2 minutes otherwise; the supervisor has its own clock.
_NO_LIMIT_MIN = 60 * 24 * 30
FOLDER_NAME = ".submitit"


def local_executor(sweep: Path) -> submitit.LocalExecutor:
    """An executor whose pickles lie in a private folder: reading one is running its code."""
    folder = sweep / FOLDER_NAME
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    executor = submitit.LocalExecutor(folder=folder)
    executor.update_parameters(timeout_min=_NO_LIMIT_MIN, tasks_per_node=1)
    return executor


def submit(executor: submitit.LocalExecutor, task: CellTask) -> Any:
    """Start one cell's supervisor as a job of its own.

    A module-level function with plain values pickles by reference: it loads on any Python.
    """
    os.environ["PYTHONPATH"] = str(ROOT)
    return executor.submit(run_cell, asdict(task))
