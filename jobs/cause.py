"""Why a start ended: the first cause among what ranks, signals and clocks say."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from datetime import datetime
from pathlib import Path

from jobs.ranks import Ranks
from train.record import RunError, Status
from train.traces import rank_file, read_failures

TAIL_LINES = 20
#: A rank's own watchdog ends it with this code (train.watchdog).
EXIT_STALLED = 75
#: A rank writes its life sign every second; this much silence means that it is stopped or gone.
SILENT_S = 5.0


def cause_of(
    cell: Path, ranks: Ranks, stopped: str | None, trouble: OSError | None
) -> tuple[Status, RunError]:
    """Status and error for a start that left no good record."""
    if stopped:
        return _stopped(stopped)
    if trouble is not None:
        what = f"{type(trouble).__name__}: {trouble}"
        todo = "free space or fix the permissions of the results folder, then make sweep again"
        return "failed", RunError(what=what, where="the supervisor", what_to_do=todo)
    return "failed", _first_failure(cell, ranks)


def _stopped(reason: str) -> tuple[Status, RunError]:
    """A stop that was asked for, as ``kind: text``."""
    kind, _, text = reason.partition(": ")
    statuses: dict[str, Status] = {"cancelled": "cancelled", "timeout": "timeout"}
    todo = "make sweep goes on from its last checkpoint"
    if kind not in statuses:
        todo = "make sweep runs the cell again"
    error = RunError(what=text, where="the supervisor", what_to_do=todo)
    return statuses.get(kind, "failed"), error


def _first_failure(cell: Path, ranks: Ranks) -> RunError:
    """In order: a hang; a rank's own error that is no mere consequence; a rank ended by a signal;
    any other bad exit."""
    if any(end.code == EXIT_STALLED for end in ranks.bad.values()):
        return _stall(cell, len(ranks.processes))
    own = [failure.error for failure in read_failures(cell) if not failure.consequence]
    if own:
        return own[0]
    bad = sorted((end.code >= 0, end.at, rank, end.code) for rank, end in ranks.bad.items())
    if not bad:
        return _error("all ranks ended well, yet there is no good record", "the ranks", cell, 0)
    _, _, rank, code = bad[0]
    what = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    return _error(f"rank {rank} {what} and left no error", f"rank {rank}", cell, rank)


def stale_rank(cell: Path, size: int, started_at: datetime, stall_s: float) -> str | None:
    """A rank that has shown no life for ``stall_s`` seconds (its watchdog writes every second)."""
    now = time.time()
    for rank in range(size):
        file = rank_file(cell, rank, "beat")
        try:
            seen = file.stat().st_mtime
        except OSError:
            seen = started_at.timestamp()
        if now - seen > stall_s:
            phase = _last_phase(file)
            return f"stalled: rank {rank} showed no life for {now - seen:.0f} s ({phase})"
    return None


def _stall(cell: Path, size: int) -> RunError:
    """Name the rank that the others waited for: one that went silent, else the longest idle."""
    now, seen = time.time(), []
    for rank in range(size):
        file = rank_file(cell, rank, "beat")
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            silent_s = now - file.stat().st_mtime
            seen.append((silent_s > SILENT_S, float(told["idle_s"]), rank, str(told["phase"])))
        except (OSError, ValueError, KeyError):
            seen.append((True, 0.0, rank, "it never started"))
    silent, idle_s, rank, phase = max(seen)
    state = "shows no life" if silent else f"made no progress for {idle_s:.0f} s"
    others = "; ".join(f"rank {r}: {p}" for _, _, r, p in sorted(seen, key=lambda s: s[2]))
    return _error(f"a hang: rank {rank} {state} (while: {phase})", others, cell, rank)


def _last_phase(file: Path) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError):
        return f"last seen: {json.loads(file.read_text(encoding='utf-8'))['phase']}"
    return "it never started"


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    hint = {
        "SIGKILL": " (from outside; the kernel's out-of-memory killer ends processes so)",
        "SIGABRT": " (a native library gave up: see the end of its log)",
        "SIGSEGV": " (a native library crashed)",
        "SIGBUS": " (often a full /dev/shm or a truncated memory-mapped file)",
    }.get(name, "")
    return name + hint


def _error(what: str, where: str, cell: Path, rank: int) -> RunError:
    log = rank_file(cell, rank, "log")
    tail: tuple[str, ...] = ()
    with contextlib.suppress(OSError):
        tail = tuple(log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:])
    todo = f"read the end of {log}, then make sweep again"
    return RunError(what=what, where=where, what_to_do=todo, rank=rank, log_tail=tail)
