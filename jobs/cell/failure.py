"""Why a start ended: the first cause among what ranks, signals and clocks say."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import TypeVar

from jobs.cell.heartbeat import blame
from jobs.cell.ranks import RankSet
from jobs.cell.stop import Reason
from train.distributed.watchdog import EXIT_STALLED
from train.errors import ConfigError, remedy
from train.record.cell_folder import (
    RankFailure,
    UnfinishedNote,
    rank_file,
    read_failures,
    read_unfinished,
    tail_of,
)
from train.record.run import RunError, RunRecord, Status
from train.record.summary import RecordSummary

#: An error that a rank wrote this much before another was killed is no reaction to that.
REACTION_S = 1.0
#: Signals that ask for an end: somebody ends everything, so none of the ranks is to blame.
_REQUESTS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def cause_of(
    cell: Path, ranks: RankSet, stopped: Reason | None, trouble: Exception | None
) -> tuple[Status, RunError]:
    """Status and error for a start that left no good record.

    In order: what a rank did by itself before it was asked to end; the stop that was asked for; the
    supervisor's own trouble; an end that tells little.
    """
    failures = _timely_failures(cell, ranks)
    if error := _own_doing(cell, ranks, failures):
        return "failed", error
    if ranks.size and (unfinished := read_unfinished(cell)):
        return stopped.status if stopped else "timeout", _unfinished(unfinished)
    if stopped:
        return stopped.status, _stopped(cell, stopped)
    if trouble is not None:
        return "failed", _trouble(trouble)
    return "failed", _weak_sign(cell, ranks, failures)


def _timely_failures(cell: Path, ranks: RankSet) -> list[RankFailure]:
    """Errors that ranks of this start wrote before they were asked to end, earliest first."""
    if not ranks.size:
        return []  # what is there was left by an earlier start
    asked = ranks.asked_at
    return [f for f in read_failures(cell) if asked is None or f.at.timestamp() <= asked]


def _own_doing(cell: Path, ranks: RankSet, failures: list[RankFailure]) -> RunError | None:
    """A kill from outside; a rank's own error that is no mere consequence; a hang; a crash."""
    own = next((failure for failure in failures if not failure.consequence), None)
    killed = [rank for rank, end in ranks.bad.items() if end.code == -signal.SIGKILL]
    if killed and (own is None or own.at.timestamp() > ranks.bad[killed[0]].at - REACTION_S):
        return _bad_exit(cell, ranks, killed[0])
    stalled = [rank for rank, end in ranks.bad.items() if end.code == EXIT_STALLED]
    if own and own.error.rank not in stalled:
        return own.error
    if stalled:
        what, where, rank = blame(cell, ranks.size, stalled[0])
        return _error(what, where, cell, rank)
    crashed = [r for r, end in ranks.bad.items() if end.code < 0 and -end.code not in _REQUESTS]
    return _bad_exit(cell, ranks, crashed[0]) if crashed else None


def _weak_sign(cell: Path, ranks: RankSet, failures: list[RankFailure]) -> RunError:
    """A bad exit without a word; else a rank that only says that a peer is gone; else nothing."""
    said = {failure.error.rank for failure in failures}
    silent = [rank for rank in ranks.bad if rank not in said]
    if silent:
        return _bad_exit(cell, ranks, silent[0])
    if failures:
        return failures[0].error
    if ranks.unended:
        rank = ranks.unended[0]
        what = f"rank {rank} cannot be ended: it waits in the kernel for a device or a file server"
        return _error(what, ranks.place(rank), cell, rank)
    return _error("all ranks ended well, yet there is no good record", "the ranks", cell, 0)


def _unfinished(told: UnfinishedNote) -> RunError:
    return RunError(
        what=f"stopped after epoch {told.epochs_done} of {told.epochs}, which is in the "
        f"checkpoint: {told.why}",
        where="the end of an epoch",
        what_to_do="make sweep goes on from there",
    )


def _stopped(cell: Path, stopped: Reason) -> RunError:
    if stopped.rank is not None:
        return _error(stopped.text, f"rank {stopped.rank}", cell, stopped.rank)
    todo = "make sweep goes on from its last checkpoint"
    return RunError(what=stopped.text, where="the supervisor", what_to_do=todo)


def _trouble(trouble: Exception) -> RunError:
    todo = "this is a fault of the suite: report it with the log of the supervisor"
    if isinstance(trouble, OSError):
        todo = f"{remedy(trouble) or 'put right what it names'}, then make sweep again"
    what = f"{type(trouble).__name__}: {trouble}"
    if isinstance(trouble, ConfigError):
        what, todo = str(trouble), "do what it says, then make sweep again"
    return RunError(what=what, where="the supervisor", what_to_do=todo)


def _bad_exit(cell: Path, ranks: RankSet, rank: int) -> RunError:
    code = ranks.bad[rank].code
    what = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    place = ranks.place(rank)
    where = f"rank {rank} on {place}" if place.startswith("node ") else f"rank {rank}"
    return _error(f"rank {rank} {what} and left no error", where, cell, rank)


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
    todo = f"read the end of {log}, then make sweep again"
    return RunError(what=what, where=where, what_to_do=todo, rank=rank, log_tail=tail_of(log))


Told = TypeVar("Told")
#: Of a log's last line; some programs print data there.
MOST_CHARACTERS = 300
_NUMBERS = re.compile(r"0x[0-9a-f]+|\b(?=[a-f]*\d)[0-9a-f]{8,}\b|\[?\d[\d.,:_-]*\]?")
_NODES = re.compile(r"\bon node [\w.-]+|\(on [^()]+\)")


def cause_line(record: RunRecord | RecordSummary) -> str:
    """What happened, and the last line of the log where that says more; '' without an error."""
    if record.error is None:
        return ""
    what = record.error.what
    last = next((line.strip() for line in reversed(record.error.log_tail) if line.strip()), "")
    last = last[:MOST_CHARACTERS]
    if last in what:
        return what
    return last if what in last else f"{what}; its log ends: {last}"


def cause_of_line(line: str, record: RunRecord | RecordSummary) -> str:
    """The line without what differs between cells of one cause: their names, hosts and numbers."""
    hosts = record.world.hostnames if record.world else ()
    names = {record.cell_id, *hosts, *(host.partition(".")[0] for host in hosts)}
    for name in sorted((name for name in names if name in line), key=len, reverse=True):
        line = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "_", line)
    return _NUMBERS.sub("0", _NODES.sub("on _", line))


def grouped(told: Iterable[Told], key: Callable[[Told], Hashable]) -> list[list[Told]]:
    """Those with equal keys together, the largest group first."""
    groups: dict[Hashable, list[Told]] = {}
    for one in told:
        groups.setdefault(key(one), []).append(one)
    return sorted(groups.values(), key=len, reverse=True)


def read_more(sweep: str, cell: str) -> str:
    """The command that shows all that is known of a cell's end. ``sweep``: as SWEEP= names it."""
    return f"make logs SWEEP={shlex.quote(sweep)} CELL={cell}"
