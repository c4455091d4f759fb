"""Exactly one culprit, and never a consequence where there is a cause."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from jobs.cell.failure import End, cause_of
from jobs.cell.ranks import Ended
from jobs.cell.stop import Reason
from jobs.local.supervisor import Ranks
from train.distributed.watchdog import EXIT_STALLED
from train.record.cell_folder import EXIT_UNFINISHED, rank_file
from train.record.run import RunError

NOW = time.time()
CANCELLED = Reason("cancelled", "got SIGINT")
GONE = "HorovodInternalError: Horovod has been shut down"


@cache
def finished() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["true"])
    process.wait()
    return process


def ends(*codes: int | None, at: float = NOW, asked_at: float | None = None) -> Ranks:
    """Ranks with these exit codes, in this order, 10 ms apart; None: only when it was asked to."""
    ranks = Ranks(processes=[finished()] * len(codes), asked_at=asked_at or at + 6)
    for rank, code in enumerate(codes):
        ended = Ended(-signal.SIGTERM, at + 6, True)
        if code is not None:
            ended = Ended(code, at + rank / 100, False)
        ranks.ended[rank] = ended
    return ranks


def wrote(cell: Path, rank: int, what: str, consequence: bool = False, at: float = 0) -> None:
    """The rank's own word, ``at`` seconds from now."""
    (cell / "logs").mkdir(exist_ok=True)
    error = RunError(what=what, where=f"rank {rank}", what_to_do="look", rank=rank)
    payload = {
        "at": datetime.fromtimestamp(NOW + at, UTC).isoformat(),
        "consequence": consequence,
        "error": error.model_dump(mode="json"),
    }
    rank_file(cell, rank, "error.json").write_text(json.dumps(payload))


def judged(cell: Path, ranks: Ranks, *words, stopped: Reason | None = None, **known):
    """Status and error, where ranks wrote these words."""
    for one in words:
        wrote(cell, *one)
    return cause_of(End(cell, ranks, stopped, **known))


STALLED = "no progress for 20 s while: all-reduce"


@pytest.mark.parametrize(
    ("words", "codes", "rank", "what"),
    [
        # a rank's own error is the cause, and the earliest of several
        ([(0, GONE, True, -1), (1, "bad image")], (1, 1), 1, "bad image"),
        ([(0, "later"), (1, "earlier", False, -0.5)], (1, 1), 1, "earlier"),
        # a kill from outside, and a reaction to it in unknown words; an error well before a kill
        ([(0, "UnknownError: socket", False, 0.02)], (1, -9), 1, "ended by SIGKILL (from outside"),
        ([(0, "MemoryError", False, -3)], (1, -9), 0, "MemoryError"),
        # a silent exit before one that only reacts; consequences alone: the first is quoted
        ([(0, GONE, True)], (1, 3), 1, "exit code 3"),
        ([(0, GONE, True)], (1, 0), 0, GONE),
        # a watchdog ended rank 0, for which rank 1 is to blame: it hangs, or could not leave
        ([(0, STALLED)], (EXIT_STALLED, None), 1, "a hang: rank 1 shows no life"),
        ([(1, "bad image", False, -20), (0, STALLED)], (EXIT_STALLED, None), 1, "bad image"),
        ([], (0, 0), 0, "no good record"),
        # a kill, and a crash, before silent exits
        ([], (3, -9), 1, "SIGKILL"),
        ([], (3, -11), 1, "SIGSEGV (a native library crashed)"),
        ([], (0, -7), 1, "SIGBUS (often a full /dev/shm"),
        ([], (0, -6), 1, "SIGABRT (a native library gave up"),
        ([], (0, -64), 1, "SIGRTMAX"),
        ([], (0, -40), 1, "signal 40"),
        ([], (0, -15), 1, "SIGTERM"),
    ],
)
def test_the_culprit(tmp_path: Path, words, codes, rank: int, what: str) -> None:
    (tmp_path / "logs").mkdir()
    rank_file(tmp_path, 0, "beat").write_text('{"phase": "all-reduce", "idle_s": 20.4}')
    rank_file(tmp_path, 1, "log").write_text("last words\n")
    status, error = judged(tmp_path, ends(*codes), *words)
    assert status == "failed" and error.rank == rank and what in error.what
    if error.what_to_do != "look":
        assert str(rank_file(tmp_path, rank, "log")) in error.what_to_do
        assert error.log_tail == (("last words",) if rank else ())


def test_a_stop_is_told_as_it_was_asked_for(tmp_path: Path) -> None:
    """A machine that goes down sends SIGTERM to ranks and supervisor, and is a stop."""
    status, error = judged(tmp_path, ends(None, None), stopped=CANCELLED)
    assert (status, error.what, error.rank) == ("cancelled", "got SIGINT", None)
    assert "goes on" in error.what_to_do
    assert judged(tmp_path, ends(-15, 1), (1, GONE, True), stopped=CANCELLED)[0] == "cancelled"
    silent = Reason("failed", "a hang: rank 1", 1)
    status, error = judged(tmp_path, ends(None, None), stopped=silent)
    assert (status, error.rank, error.what) == ("failed", 1, "a hang: rank 1")


def test_a_failure_before_a_stop_counts_and_one_in_answer_to_it_does_not(tmp_path: Path) -> None:
    """Ctrl-C in the seconds that peers have: next time the cell would only fail again."""
    early, late = ends(1, None, asked_at=NOW + 2), ends(None, None, asked_at=NOW - 1)
    words = (0, "ValueError: bad image")
    assert judged(tmp_path, early, words, stopped=CANCELLED)[1].what == "ValueError: bad image"
    assert judged(tmp_path, late, words, stopped=CANCELLED)[0] == "cancelled"


def test_trouble_of_the_supervisor(tmp_path: Path) -> None:
    full = OSError(28, "No space left on device")
    status, error = judged(tmp_path, ends(1, 1), trouble=full)
    assert status == "failed" and "No space left" in error.what and "free space" in error.what_to_do
    _, error = judged(tmp_path, ends(1, 1), (1, "disk on fire"), trouble=full)
    assert error.what == "disk on fire"
    _, error = judged(tmp_path, Ranks(), trouble=KeyError("x"))
    assert "fault of the suite" in error.what_to_do


def test_the_launchers_verdict_comes_first_unless_a_stop_or_trouble_explains_all(
    tmp_path: Path,
) -> None:
    lost = "lost", RunError(what="a node failed", where="node n1", what_to_do="look")
    words, knows = (0, "of a rank"), {"launcher": lambda: lost}
    assert judged(tmp_path, ends(1), words, **knows) == lost
    assert judged(tmp_path, ends(1), stopped=CANCELLED, **knows)[1].what == "of a rank"
    assert judged(tmp_path, ends(1), trouble=OSError(28, "full"), **knows)[1].what == "of a rank"
    stale = OSError(116, "Stale file handle")
    assert judged(tmp_path, ends(1), refusal=stale, **knows) == lost, "it may have come after that"


def test_a_disk_that_refuses_a_write_is_why_ranks_say_nothing(tmp_path: Path) -> None:
    full = OSError(28, "No space left on device")
    status, error = judged(tmp_path, ends(1, 1), refusal=full)
    assert (status, error.where) == (
        "failed",
        "the supervisor",
    ) and "free space" in error.what_to_do


def test_ranks_that_stopped_at_an_epochs_end_are_no_failure(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "unfinished").write_text("stopped after epoch 3 of 9")
    status, error = judged(tmp_path, ends(EXIT_UNFINISHED, None))
    assert status == "timeout" and "stopped after epoch 3 of 9" in error.what
    preempted = Reason("preempted", "x")
    assert judged(tmp_path, ends(None), stopped=preempted)[0] == "preempted"


def test_a_rank_that_cannot_be_ended(tmp_path: Path) -> None:
    ranks = ends(0, 0)
    del ranks.ended[1]
    _, error = judged(tmp_path, ranks)
    assert error.rank == 1 and "waits in the kernel" in error.what
