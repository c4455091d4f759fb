"""Exactly one culprit, and never a consequence where there is a cause."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cell.failure import End, cause_of
from jobs.cell.ranks import Ended
from jobs.cell.stop import Reason
from jobs.local.ranks import Ranks
from train.distributed.watchdog import EXIT_STALLED
from train.record.cell_folder import (
    EXIT_UNFINISHED,
    TAIL_BYTES,
    TAIL_LINES,
    rank_file,
    tail_of,
)
from train.record.run import RunError, Status

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


def said(cell: Path, rank: int, what: str, *, consequence: bool = False, at: float = NOW) -> None:
    (cell / "logs").mkdir(exist_ok=True)
    error = RunError(what=what, where=f"rank {rank}", what_to_do="look", rank=rank)
    told = {
        "at": datetime.fromtimestamp(at, UTC).isoformat(),
        "consequence": consequence,
        "error": error.model_dump(mode="json"),
    }
    rank_file(cell, rank, "error.json").write_text(json.dumps(told))


def blamed(cell: Path, ranks: Ranks, stopped: Reason | None = None) -> tuple[Status, RunError]:
    return cause_of(End(cell, ranks, stopped))


def told(verdict: tuple[Status, RunError] | None) -> Callable[[], tuple[Status, RunError] | None]:
    """A launcher that knows this."""
    return lambda: verdict


def test_a_ranks_own_error_is_the_cause(tmp_path: Path) -> None:
    said(tmp_path, 0, GONE, consequence=True, at=NOW - 1)
    said(tmp_path, 1, "ValueError: bad image", at=NOW)
    status, error = blamed(tmp_path, ends(1, 1))
    assert (status, error.rank, error.what) == ("failed", 1, "ValueError: bad image")


def test_the_earliest_of_several_own_errors(tmp_path: Path) -> None:
    said(tmp_path, 0, "later", at=NOW)
    said(tmp_path, 1, "earlier", at=NOW - 0.5)
    assert blamed(tmp_path, ends(1, 1))[1].what == "earlier"


def test_a_kill_from_outside_beats_a_reaction_in_unknown_words(tmp_path: Path) -> None:
    said(tmp_path, 0, "UnknownError: socket went away", at=NOW + 0.02)
    _, error = blamed(tmp_path, ends(1, -9))
    assert error.rank == 1 and "SIGKILL" in error.what


def test_an_error_well_before_a_kill_is_the_cause(tmp_path: Path) -> None:
    said(tmp_path, 0, "MemoryError", at=NOW - 3)
    assert blamed(tmp_path, ends(1, -9))[1].what == "MemoryError"


def test_a_silent_exit_is_blamed_before_one_that_only_reacts(tmp_path: Path) -> None:
    said(tmp_path, 0, GONE, consequence=True)
    _, error = blamed(tmp_path, ends(1, 3))
    assert error.rank == 1 and "exit code 3" in error.what


def test_with_consequences_alone_the_first_is_quoted(tmp_path: Path) -> None:
    said(tmp_path, 0, GONE, consequence=True)
    assert blamed(tmp_path, ends(1, 0))[1].what == GONE


@pytest.mark.parametrize(
    ("code", "words"),
    [(-11, "SIGSEGV (a native library crashed)"), (-7, "SIGBUS (often a full /dev/shm"),
     (-6, "SIGABRT (a native library gave up"), (-64, "SIGRTMAX"), (-40, "signal 40"),
     (-15, "SIGTERM"), (7, "exit code 7")],
)  # fmt: skip
def test_how_a_rank_ended_in_words(tmp_path: Path, code: int, words: str) -> None:
    _, error = blamed(tmp_path, ends(0, code))
    assert error.rank == 1 and words in error.what
    assert str(rank_file(tmp_path, 1, "log")) in error.what_to_do


def test_a_rank_whose_watchdog_ended_it_is_a_hang(tmp_path: Path) -> None:
    """Rank 1 never gave a life sign: the others waited for it."""
    (tmp_path / "logs").mkdir()
    rank_file(tmp_path, 0, "beat").write_text('{"phase": "all-reduce", "idle_s": 20.4}')
    said(tmp_path, 0, "no progress for 20 s while: all-reduce", at=NOW)
    _, error = blamed(tmp_path, ends(EXIT_STALLED, None))
    assert error.rank == 1 and error.what.startswith("a hang: rank 1 shows no life")
    assert error.where == "rank 0: all-reduce; rank 1: it never started"


def test_a_rank_that_failed_but_could_not_leave_is_the_cause_of_the_hang(tmp_path: Path) -> None:
    said(tmp_path, 1, "ValueError: bad image", at=NOW - 20)
    said(tmp_path, 0, "no progress for 20 s while: all-reduce", at=NOW)
    assert blamed(tmp_path, ends(EXIT_STALLED, None))[1].what == "ValueError: bad image"


def test_a_stop_is_told_as_it_was_asked_for(tmp_path: Path) -> None:
    status, error = blamed(tmp_path, ends(None, None), CANCELLED)
    assert (status, error.what, error.rank) == ("cancelled", "got SIGINT", None)
    status, error = blamed(tmp_path, ends(None), Reason("timeout", "over"))
    assert status == "timeout" and "goes on" in error.what_to_do


def test_a_silent_rank_is_named_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    rank_file(tmp_path, 1, "log").write_text("last words\n")
    status, error = blamed(tmp_path, ends(None, None), Reason("failed", "a hang: rank 1", 1))
    assert (status, error.rank, error.log_tail) == ("failed", 1, ("last words",))


def test_a_failure_before_a_stop_is_not_hidden_by_it(tmp_path: Path) -> None:
    """Ctrl-C in the seconds that peers have: next time the cell would only fail again."""
    said(tmp_path, 0, "ValueError: bad image", at=NOW)
    status, error = blamed(tmp_path, ends(1, None, asked_at=NOW + 2), CANCELLED)
    assert (status, error.what) == ("failed", "ValueError: bad image")


def test_an_error_in_answer_to_a_stop_is_no_failure(tmp_path: Path) -> None:
    said(tmp_path, 0, "SystemError: asked to end", at=NOW + 1)
    assert blamed(tmp_path, ends(None, asked_at=NOW), CANCELLED)[0] == "cancelled"


def test_a_machine_that_goes_down_is_a_stop(tmp_path: Path) -> None:
    """Ranks got SIGTERM from outside, as the supervisor did."""
    said(tmp_path, 1, GONE, consequence=True)
    assert blamed(tmp_path, ends(-15, 1), Reason("cancelled", "got SIGTERM"))[0] == "cancelled"


def test_trouble_of_the_supervisor(tmp_path: Path) -> None:
    full = OSError(28, "No space left on device")
    status, error = cause_of(End(tmp_path, ends(1, 1), trouble=full))
    assert status == "failed" and "No space left" in error.what and "free space" in error.what_to_do
    said(tmp_path, 1, "OSError: disk on fire")
    assert cause_of(End(tmp_path, ends(1, 1), trouble=full))[1].what == "OSError: disk on fire"
    _, error = cause_of(End(tmp_path, Ranks(), trouble=KeyError("x")))
    assert "fault of the suite" in error.what_to_do


def test_the_launchers_verdict_comes_first_unless_a_stop_or_trouble_explains_all(
    tmp_path: Path,
) -> None:
    said(tmp_path, 0, "ValueError: of a rank")
    lost = "lost", RunError(what="a node failed", where="node n1", what_to_do="look")
    assert cause_of(End(tmp_path, ends(1), launcher=told(lost))) == lost
    assert cause_of(End(tmp_path, ends(1), CANCELLED, launcher=told(lost)))[0] == "failed"
    full = OSError(28, "No space left on device")
    assert cause_of(End(tmp_path, ends(1), trouble=full, launcher=told(lost)))[0] == "failed"
    assert cause_of(End(tmp_path, ends(1), launcher=told(None)))[1].what == "ValueError: of a rank"


def test_ranks_that_stopped_at_an_epochs_end_are_no_failure(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    note = {"why": "a stop was asked for", "epochs_done": 3, "epochs": 9}
    (tmp_path / "logs" / "unfinished.json").write_text(json.dumps(note))
    status, error = blamed(tmp_path, ends(EXIT_UNFINISHED, None))
    assert status == "timeout" and "stopped after epoch 3 of 9" in error.what
    assert blamed(tmp_path, ends(None), Reason("preempted", "x"))[0] == "preempted"


def test_good_ends_without_a_record(tmp_path: Path) -> None:
    assert "no good record" in blamed(tmp_path, ends(0, 0))[1].what


def test_a_rank_that_cannot_be_ended(tmp_path: Path) -> None:
    ranks = ends(0, 0)
    del ranks.ended[1]
    _, error = blamed(tmp_path, ranks)
    assert error.rank == 1 and "waits in the kernel" in error.what


def test_unreadable_traces_do_not_hide_an_end(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    rank_file(tmp_path, 0, "error.json").write_text('{"at": ')
    rank_file(tmp_path, 0, "log").mkdir()
    _, error = blamed(tmp_path, ends(5))
    assert "exit code 5" in error.what and error.log_tail == ()


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        out.truncate(3 * 2**30)  # sparse: it takes no room
        out.seek(0, os.SEEK_END)
        out.write(b"\n\xff broken\n" + b"\n".join(b"line %d" % n for n in range(30)))
    began = time.process_time()
    assert tail_of(log) == tuple(f"line {n}" for n in range(30 - TAIL_LINES, 30))
    assert time.process_time() - began < 1
    log.write_bytes(b"x" * 10 * TAIL_BYTES)
    assert [len(line) for line in tail_of(log)] == [TAIL_BYTES]


one_end = st.tuples(
    st.sampled_from([0, 1, 2, 3, EXIT_STALLED, -6, -9, -11, -15, None]),
    st.sampled_from(["nothing", "own", "consequence"]),
    st.floats(-10, 5),  # when it spoke, seconds after the first end
)


@given(st.lists(one_end, min_size=1, max_size=4), st.sampled_from([None, CANCELLED]))
def test_one_culprit_and_no_consequence_where_there_is_a_cause(ranks, stopped) -> None:
    with TemporaryDirectory() as name:
        cell = Path(name)
        (cell / "logs").mkdir()
        for rank, (_, word, when) in enumerate(ranks):
            rank_file(cell, rank, "beat").write_text('{"phase": "training", "idle_s": 1}')
            if word != "nothing":
                said(cell, rank, f"{word} {rank}", consequence=word == "consequence", at=NOW + when)
        found = ends(*(code for code, _, _ in ranks))
        status, error = blamed(cell, found, stopped)
    assert status == "failed" or (stopped and status == stopped.status)
    telling = {
        rank for rank, (code, word, _) in enumerate(ranks)
        if word == "own" or code == EXIT_STALLED or ((code or 0) < 0 and code != -15)
    }  # fmt: skip
    if telling:
        assert status == "failed"
        assert error.rank in telling or "a hang" in error.what
        assert not error.what.startswith("consequence")
    elif stopped:
        assert status == "cancelled" and error.rank is None
    elif any(code and word == "nothing" for code, word, _ in ranks):
        assert not error.what.startswith("consequence")
        assert ranks[error.rank][0] != 0
