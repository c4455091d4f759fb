"""Why a start ended: judges are asked in order, and the first verdict counts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jobs.cell.heartbeat import blame
from jobs.cell.ranks import RankSet
from jobs.cell.stop import Reason
from train.distributed.watchdog import EXIT_STALLED
from train.errors import ConfigError, remedy
from train.record.cell_folder import (
    RankFailure,
    rank_file,
    read_failures,
    read_unfinished,
    tail_of,
)
from train.record.run import RunError, Status

#: An error that a rank wrote this much before another was killed is no reaction to that.
REACTION_S = 1.0
#: Signals that ask for an end: somebody ends everything, so none of the ranks is to blame.
_REQUESTS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
Verdict = tuple[Status, RunError]


@dataclass(frozen=True)
class End:
    """All that is known of a start that left no good record."""

    cell: Path
    ranks: RankSet
    stopped: Reason | None = None  # why it was asked to end
    trouble: Exception | None = None  # of the supervisor itself
    refusal: OSError | None = None  # of the file system, when it was asked after the end
    launcher: Callable[[], Verdict | None] = lambda: None  # what only the ranks' launcher knows

    @cached_property
    def failures(self) -> list[RankFailure]:
        """Errors that ranks of this start wrote before they were asked to end, earliest first."""
        if not self.ranks.size:
            return []  # what is there was left by an earlier start
        asked = self.ranks.asked_at
        return [f for f in read_failures(self.cell) if asked is None or f.at.timestamp() <= asked]


def cause_of(end: End) -> Verdict:
    """Status and error for a start that left no good record."""
    return next(verdict for judge in JUDGES if (verdict := judge(end)))


def _launcher(end: End) -> Verdict | None:
    return None if end.stopped or end.trouble else end.launcher()


def _own_doing(end: End) -> Verdict | None:
    """What a rank did by itself before it was asked to end: it was killed from outside; it failed,
    and not for a peer that is gone; it hung; it crashed."""
    bad = end.ranks.bad
    own = next((failure for failure in end.failures if not failure.consequence), None)
    killed = [rank for rank, ended in bad.items() if ended.code == -signal.SIGKILL]
    if killed and (own is None or own.at.timestamp() > bad[killed[0]].at - REACTION_S):
        return _bad_exit(end, killed[0])
    stalled = [rank for rank, ended in bad.items() if ended.code == EXIT_STALLED]
    if own and own.error.rank not in stalled:
        return "failed", own.error
    if stalled:
        what, where, rank = blame(end.cell, end.ranks.size, stalled[0])
        return _of_rank(end, what, where, rank)
    crashed = [r for r, ended in bad.items() if ended.code < 0 and -ended.code not in _REQUESTS]
    return _bad_exit(end, crashed[0]) if crashed else None


def _unfinished(end: End) -> Verdict | None:
    """The ranks stopped at an epoch's end on purpose."""
    what = read_unfinished(end.cell) if end.ranks.size else ""
    if not what:
        return None
    return end.stopped.status if end.stopped else "timeout", RunError(
        what=what,
        where="the end of an epoch",
        what_to_do="make sweep goes on from there",
    )


def _stopped(end: End) -> Verdict | None:
    stopped = end.stopped
    if stopped is None:
        return None
    if stopped.rank is not None:
        return _of_rank(end, stopped.text, f"rank {stopped.rank}", stopped.rank, stopped.status)
    todo = "make sweep goes on from its last checkpoint"
    return stopped.status, RunError(what=stopped.text, where="the supervisor", what_to_do=todo)


def _trouble(end: End) -> Verdict | None:
    trouble = end.trouble or end.refusal
    if trouble is None:
        return None
    what = f"{type(trouble).__name__}: {trouble}"
    todo = "this is a fault of the suite: report it with the output of the supervisor"
    if isinstance(trouble, OSError):
        first = remedy(trouble, end.cell) or "put right what it names"
        todo = f"{first}, then make sweep again"
    if isinstance(trouble, ConfigError):
        what, todo = str(trouble), "do what it says, then make sweep again"
    return "failed", RunError(what=what, where="the supervisor", what_to_do=todo)


def _weak_sign(end: End) -> Verdict:
    """A bad exit without an error; else a rank that only says that a peer is gone; else nothing."""
    ranks = end.ranks
    reported = {failure.error.rank for failure in end.failures}
    if silent := [rank for rank in ranks.bad if rank not in reported]:
        return _bad_exit(end, silent[0])
    if end.failures:
        return "failed", end.failures[0].error
    if ranks.unended:
        rank = ranks.unended[0]
        what = f"rank {rank} cannot be ended: it waits in the kernel for a device or a file server"
        return _of_rank(end, what, ranks.place(rank), rank)
    return _of_rank(end, "all ranks ended well, yet there is no good record", "the ranks", 0)


JUDGES = (_launcher, _own_doing, _unfinished, _stopped, _trouble, _weak_sign)


def _bad_exit(end: End, rank: int) -> Verdict:
    code = end.ranks.bad[rank].code
    what = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    place = end.ranks.place(rank)
    where = f"rank {rank} on {place}" if place.startswith("node ") else f"rank {rank}"
    return _of_rank(end, f"rank {rank} {what} and left no error", where, rank)


def _signal_name(number: int) -> str:
    name = next((one.name for one in signal.Signals if one == number), f"signal {number}")
    hint = {
        "SIGKILL": " (from outside; the kernel's out-of-memory killer ends processes so)",
        "SIGABRT": " (a native library gave up: see the end of its log)",
        "SIGSEGV": " (a native library crashed)",
        "SIGBUS": " (often a full /dev/shm or a truncated memory-mapped file)",
    }.get(name, "")
    return name + hint


def _of_rank(end: End, what: str, where: str, rank: int, status: Status = "failed") -> Verdict:
    log = rank_file(end.cell, rank, "log")
    todo = f"read the end of {log}, then make sweep again"
    return status, RunError(
        what=what, where=where, what_to_do=todo, rank=rank, log_tail=tail_of(log)
    )
