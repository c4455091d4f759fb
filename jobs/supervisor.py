"""One start of one cell, watched to its end, whatever end that is: exactly one record remains."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.cause import cause_of
from jobs.launch import CellTask, clean_environment, rank_environment, train_argv
from jobs.lock import hold
from jobs.ranks import Ranks, end_leftovers
from jobs.settle import Begun, announce, is_good, over, reserve, settle, settle_lost
from jobs.signs import Watch
from jobs.stop import Reason, Stop, stopped_by_signals
from train.config import RunConfig, load_config
from train.record import RECORD_NAME, read_record
from train.traces import (
    CHECKPOINT_NAME,
    CONFIG_NAME,
    EPOCHS_NAME,
    START_NAME,
    earlier_attempts,
    rank_file,
)

ROOT = Path(__file__).resolve().parent.parent
PROBE_NAME = ".probe"
PROBE_BYTES = 64 * 1024


def run_cell(told: dict[str, Any]) -> str:
    """Run one cell and return the status of its record. Called by submitit, in its own process.

    Takes plain JSON values, so that the pickle holds no class of ours.
    """
    task = CellTask(**{**told, "cores": tuple(tuple(group) for group in told["cores"])})
    cell = Path(task.cell)
    # ignored (as some daemons leave it), it would make every rank seem to end well
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with stopped_by_signals() as stop, hold(cell, lambda: stop.reason) as ours:
        if not ours:
            return "cancelled"  # while waiting for another supervisor, which leaves the record
        end_leftovers(cell)
        if is_good(cell):
            return "kept"
        config = load_config(cell / CONFIG_NAME)
        settle_lost(cell, config)
        return _run(task, cell, config, stop)


def _run(task: CellTask, cell: Path, config: RunConfig, stop: Stop) -> str:
    started_at = datetime.now(UTC)
    attempt = len(earlier_attempts(cell)) + 1
    ranks = Ranks()
    stopped: Reason | None = None
    trouble: Exception | None = None
    try:
        _clear(cell, config.gpus, resume=task.resume)
        reserve(cell, config.epochs)
        announce(cell, Begun(number=attempt, started_at=started_at, pid=os.getpid()))
        _start(task, cell, config, attempt, ranks)
        stopped = ranks.watch(_overdue(task, cell, config, stop))
    except Exception as caught:  # noqa: BLE001  (even a fault of our own must leave a record)
        trouble = caught
    finally:
        ranks.end()
        end_leftovers(cell)
    trouble = trouble or (_refusal(cell) if ranks.bad else None)
    if not is_good(cell):
        status, error = cause_of(cell, ranks, stopped, trouble)
        settle(cell, config, status, error, started_at)
    over(cell)
    return read_record(cell / RECORD_NAME).status


def _start(task: CellTask, cell: Path, config: RunConfig, attempt: int, ranks: Ranks) -> None:
    base = clean_environment(os.environ)
    argv = train_argv(task, attempt)
    for rank in range(config.gpus):
        extra = rank_environment(task, rank, attempt=attempt, supervisor=os.getpid(), root=ROOT)
        ranks.start(argv, base | extra, rank_file(cell, rank, "log"))


def _overdue(
    task: CellTask, cell: Path, config: RunConfig, stop: Stop
) -> Callable[[], Reason | None]:
    """To be asked again and again while ranks run: is there a reason to end them?"""
    watch = Watch(cell, config.gpus)
    began = time.monotonic()

    def reason() -> Reason | None:
        if stop.reason:
            return stop.reason
        if task.limit_s is not None and time.monotonic() - began > task.limit_s:
            return Reason("timeout", f"the time limit of {task.limit_s:.0f} s is over")
        return watch.stale(1.5 * task.stall_s + 5)

    return reason


def _clear(cell: Path, size: int, *, resume: bool) -> None:
    """Remove what an earlier start left that would be mistaken for this one's, or takes up room."""
    logs = cell / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    stale = [logs / START_NAME]
    for pattern in ("rank-*.error.json", "rank-*.beat", "rendezvous-*", ".*.tmp"):
        stale += logs.glob(pattern)
    stale += cell.glob(".*.tmp")  # a rank that is ended while it writes a checkpoint leaves it
    if not resume:
        stale += [cell / CHECKPOINT_NAME, cell / EPOCHS_NAME]
        stale += [rank_file(cell, rank, "log") for rank in range(size)]
    for file in stale:
        file.unlink(missing_ok=True)


def _refusal(cell: Path) -> OSError | None:
    """What the file system says to a write now: a rank that may not write cannot say why either."""
    try:
        (cell / PROBE_NAME).write_bytes(os.urandom(PROBE_BYTES))
    except OSError as error:
        return error
    finally:
        with contextlib.suppress(OSError):
            (cell / PROBE_NAME).unlink(missing_ok=True)
    return None
