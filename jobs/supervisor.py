"""One start of one cell, watched to its end, whatever end that is: exactly one record remains."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from jobs.cause import cause_of, stale_rank
from jobs.launch import CellTask, clean_environment, rank_environment, train_argv
from jobs.ranks import Ranks
from train.config import RunConfig, load_config
from train.files import write_atomically
from train.record import GOOD, RECORD_NAME, RunError, Status, read_record, write_record
from train.traces import (
    CHECKPOINT_NAME,
    CONFIG_NAME,
    EPOCHS_NAME,
    START_NAME,
    earlier_attempts,
    ended_record,
    rank_file,
)

ROOT = Path(__file__).resolve().parent.parent
ATTEMPT_NAME = "attempt.json"
LOCK_NAME = ".running"
#: Room kept on the disk so that the record of a run that filled it can still be written.
RESERVE_NAME = ".reserve"
RESERVE_BYTES = 256 * 1024


@dataclass
class Stop:
    """Set by a signal: why this start has to end."""

    reason: str | None = None


def run_cell(told: dict[str, Any]) -> str:
    """Run one cell and return the status of its record. Called by submitit, in its own process.

    Takes plain JSON values, so that the pickle holds no class of ours.
    """
    task = CellTask(**{**told, "cores": tuple(tuple(group) for group in told["cores"])})
    cell = Path(task.cell)
    with _only_one(cell), _stopped_by_signals() as stop:
        if is_good(cell):
            return "kept"
        return _run(task, cell, load_config(cell / CONFIG_NAME), stop)


def _run(task: CellTask, cell: Path, config: RunConfig, stop: Stop) -> str:
    started_at = datetime.now(UTC)
    attempt = len(earlier_attempts(cell)) + 1
    ranks = Ranks()
    stopped: str | None = None
    trouble: OSError | None = None
    try:
        _clear(cell, config.gpus, resume=task.resume)
        _reserve(cell)
        told = {"number": attempt, "started_at": started_at.isoformat(), "pid": os.getpid()}
        write_atomically(cell / "logs" / ATTEMPT_NAME, json.dumps(told))
        _start(task, cell, config, attempt, ranks)
        stopped = ranks.watch(lambda: stop.reason or _overdue(task, cell, config, started_at))
    except OSError as error:
        trouble = error
    finally:
        if not ranks.all_ended:
            ranks.end(patience_s=0.3 if stop.reason else 3.0)
        (cell / RESERVE_NAME).unlink(missing_ok=True)
    if is_good(cell):
        return read_record(cell / RECORD_NAME).status
    status, found = cause_of(cell, ranks, stopped, trouble)
    _settle(cell, config, status, found, started_at)
    return status


def _start(task: CellTask, cell: Path, config: RunConfig, attempt: int, ranks: Ranks) -> None:
    base = clean_environment(os.environ)
    argv = train_argv(task, attempt)
    for rank in range(config.gpus):
        extra = rank_environment(task, rank, attempt=attempt, supervisor=os.getpid(), root=ROOT)
        ranks.start(argv, base | extra, rank_file(cell, rank, "log"))


def _overdue(task: CellTask, cell: Path, config: RunConfig, started_at: datetime) -> str | None:
    """The supervisor's own watch: it also sees a rank whose watchdog is stopped with it."""
    running_s = (datetime.now(UTC) - started_at).total_seconds()
    if task.limit_s is not None and running_s > task.limit_s:
        return f"timeout: the time limit of {task.limit_s:.0f} s is over"
    return stale_rank(cell, config.gpus, started_at, 1.5 * task.stall_s + 5)


def _clear(cell: Path, size: int, *, resume: bool) -> None:
    """Remove what an earlier start left that would be mistaken for this one's."""
    logs = cell / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for pattern in ("rank-*.error.json", "rank-*.beat", "rendezvous-*", START_NAME):
        for file in logs.glob(pattern):
            file.unlink(missing_ok=True)
    if not resume:
        (cell / CHECKPOINT_NAME).unlink(missing_ok=True)
        (cell / EPOCHS_NAME).unlink(missing_ok=True)
        for rank in range(size):
            rank_file(cell, rank, "log").unlink(missing_ok=True)


def _reserve(cell: Path) -> None:
    (cell / RESERVE_NAME).write_bytes(bytes(RESERVE_BYTES))


def _settle(
    cell: Path, config: RunConfig, status: Status, error: RunError, started_at: datetime
) -> None:
    record = ended_record(
        cell, config, status, error, started_at=started_at, ended_at=datetime.now(UTC)
    )
    write_record(cell / RECORD_NAME, record)


def settle_lost(cell: Path, config: RunConfig) -> bool:
    """Give a cell whose supervisor was killed its record; True when there was one to give.

    Only for a cell that nobody runs: the caller holds its lock.
    """
    try:
        told = json.loads((cell / "logs" / ATTEMPT_NAME).read_text(encoding="utf-8"))
        number, started_at = told["number"], datetime.fromisoformat(told["started_at"])
    except (OSError, ValueError, KeyError):
        return False
    if len(earlier_attempts(cell)) >= number:
        return False
    error = RunError(
        what="the supervisor of this start ended without a word (killed, or the machine went down)",
        where=f"process {told.get('pid')} on this machine",
        what_to_do="make sweep goes on from its last checkpoint",
    )
    _settle(cell, config, "lost", error, started_at)
    return True


def is_good(cell: Path) -> bool:
    """Whether the cell has a record that no retry may replace."""
    with contextlib.suppress(ValueError):
        return read_record(cell / RECORD_NAME).status in GOOD
    return False


@contextlib.contextmanager
def _only_one(cell: Path) -> Iterator[None]:
    """Held while a cell runs: a supervisor that outlived its `make sweep` keeps others out."""
    cell.mkdir(parents=True, exist_ok=True)
    with (cell / LOCK_NAME).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_running(cell: Path) -> bool:
    """Whether some supervisor holds the cell now."""
    try:
        with (cell / LOCK_NAME).open("r+") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[Stop]:
    """Turn the signals that end a job into a reason; they often come twice, so only the first
    counts and the handler does nothing but remember."""
    stop = Stop()

    def remember(number: int, _frame: FrameType | None) -> None:
        stop.reason = stop.reason or f"cancelled: got {signal.Signals(number).name}"

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, remember) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
