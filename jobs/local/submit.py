"""Hand cells to submitit's local executor; for Slurm's see jobs/slurm/submit.py."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import submitit

from jobs.cell.launch import CellTask
from jobs.cell.stop import held_back
from jobs.local.supervisor import run_cell
from jobs.messages import ROOT
from train.errors import ConfigError

#: submitit's local jobs end after 2 minutes otherwise; the supervisor has its own clock.
_NO_LIMIT_MIN = 60 * 24 * 30
SUBMITIT = ".submitit"


def local_executor(sweep: Path) -> submitit.LocalExecutor:
    """An executor whose pickles lie in a private folder: reading one is running its code.

    A new folder for each sweep, because submitit names its files by process numbers, and these come
    again: soon in a container, where an earlier sweep's pickle could be taken for this one's.

    Raises:
        ConfigError: the path holds what submitit would replace by numbers of jobs.
    """
    private = sweep / SUBMITIT
    if found := [tag for tag in ("%j", "%t", "%A", "%a") if tag in str(private)]:
        raise ConfigError(
            f"the results folder {sweep} has {found[0]} in its path, which submitit replaces by a "
            "job's number: name a folder without it with RESULTS=DIR"
        )
    private.mkdir(mode=0o700, parents=True, exist_ok=True)
    private.chmod(0o700)
    folder = private / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{os.getpid()}"
    folder.mkdir(mode=0o700)
    executor = submitit.LocalExecutor(folder=folder)
    executor.update_parameters(timeout_min=_NO_LIMIT_MIN, tasks_per_node=1)
    return executor


def submit(executor: submitit.LocalExecutor, task: CellTask) -> Any:
    """Start one cell's supervisor as a job of its own.

    A module-level function with plain values pickles by reference: it loads on any Python.
    submitit's own process between us and the supervisor answers a terminal's Ctrl-C by killing the
    supervisor a second later, so those signals are held back from it; the supervisor asks for them.
    """
    os.environ["PYTHONPATH"] = str(ROOT)
    with held_back(signal.SIGINT, signal.SIGHUP):
        return executor.submit(run_cell, asdict(task))


def log_of(job: Any) -> Path:
    """What the supervisor itself printed."""
    return Path(job.paths.stderr)


def ask_to_end(job: Any) -> None:
    """SIGTERM, which submitit passes on to the supervisor, unlike its own cancel's SIGINT.

    It is lost where the supervisor is just being started: to be repeated until the job is done.
    """
    if not job.done():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(job.job_id), signal.SIGTERM)
