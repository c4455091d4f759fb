"""Who has gone silent, and who hangs, by what ranks wrote and when."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.cell.heartbeat import NEVER, Watch, blame, is_stopped, read_sign
from jobs.cell.stop import Reason
from tests.sweeps import wait_until
from tests.unreadable import stale
from train.distributed.awake import PERIOD_S, Awake
from train.distributed.watchdog import BEAT_S, SIGN_BYTES, WAITING
from train.record.cell_folder import rank_file

NOW = time.time()
STEP = "training step 5 of 11"


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


def beat(cell: Path, rank: int, phase: str, idle_s: float, at: float = 0, asleep: float = 0.0):
    """A life sign, ``at`` seconds from now."""
    file = rank_file(cell, rank, "beat")
    sign = {"phase": phase, "idle_s": idle_s, "asleep_s": asleep, "beat_s": BEAT_S}
    file.write_text(json.dumps(sign).ljust(SIGN_BYTES - 1) + "\n")
    os.utime(file, (NOW + at, NOW + at))


def test_half_a_sign_is_one_and_none_is_none(cell: Path) -> None:
    beat(cell, 0, "training", 1.5)
    file = rank_file(cell, 0, "beat")
    whole, sign = file.read_text(), read_sign(cell, 0)
    assert (sign.at, sign.phase, sign.idle_s) == (pytest.approx(NOW), "training", 1.5)
    for half in ("", whole[:20], whole[30:], "[]"):
        file.write_text(half)
        assert read_sign(cell, 0).at is not None and read_sign(cell, 0).phase == "unknown"
    file.write_text(whole.strip() + "\nthe end of a longer line")
    assert read_sign(cell, 0).phase == "training"
    assert (read_sign(cell, 1).at, read_sign(cell, 1).phase) == (None, NEVER)


@pytest.mark.parametrize(
    ("signs", "culprit", "what"),
    [
        # rank 0 waited, its watchdog ended it; rank 1 was stopped; it is looked at much later
        ([("all-reduce", 300.4, -100), ("reading data", 0.1, -400)], 1,
         "shows no life (while: reading data)"),
        # rank 1 was stopped, and woken to be ended
        ([(STEP, 9.3), (STEP, 9.1, 0.4, 9.0)], 1, f"shows no life (while: {STEP})"),
        # all were suspended, and rank 1 was stopped once more after it
        ([("all-reduce", 9.3, 0, 60.1), (STEP, 9.1, 0.4, 69.0)], 1, "shows no life"),
        ([("all-reduce", 9.3, 0, 60.1), ("all-reduce", 9.1, 0, 60.0)], 0, "no progress for 9 s"),
        # rank 1 waits for rank 0, and wrote its last sign when it was due
        ([("loading", 300.2, -5), ("all-reduce", 299.9, -5)], 0, "made no progress for 300 s"),
        ([("loading", 300.2, -5), ("all-reduce", 285.9, -19)], 0, "(while: loading)"),
        # a graph's progress is seen four times a second, so which of two was first may not be
        ([(STEP + WAITING, 300.4), (STEP, 300.2)], 1, f"(while: {STEP})"),
        # it may be idle for longer when it is ended than rank 0 ever was
        ([("loading", 300.2, -5), ("all-reduce", 304.9)], 0, "(while: loading)"),
        # rank 2 has no sign at all
        ([("all-reduce", 300.0), ("all-reduce", 300.0, -400), None], 2, f"(while: {NEVER})"),
    ],
)  # fmt: skip
def test_who_is_to_blame_for_a_hang(cell: Path, signs, culprit: int, what: str) -> None:
    for rank, sign in enumerate(signs):
        if sign:
            beat(cell, rank, *sign)
    said, others, rank = blame(cell, len(signs), 0)
    assert rank == culprit and said.startswith(f"a hang: rank {rank} ") and what in said
    assert others.startswith(f"rank 0: {signs[0][0]}; rank 1: {signs[1][0]}")


@dataclass
class Clock:
    """A supervisor's time, which the tests move; seconds."""

    watch: Watch
    time: float = 1000.0

    def hang(self, seconds: float) -> Reason | None:
        """What is found while so much time passes."""
        for _ in range(round(seconds / PERIOD_S)):
            self.time += PERIOD_S
            if found := self.watch.hang():
                return found
        return None


@pytest.fixture
def clock(cell: Path) -> Clock:
    """Of one rank, whose silence counts after 92.5 s."""
    made = Clock(Watch(cell, 1, stall_s=5.0, awake=Awake(lambda: made.time, lambda: 0.0)))
    return made


def test_silence_is_timed_by_our_clock_alone(cell: Path, clock: Clock) -> None:
    """A clock that was set, or a file server an hour ahead or behind."""
    for hour in (-1, 5, -3, 0, 9):
        beat(cell, 0, "training", 0, 3600 * hour)
        assert clock.hang(85) is None, "15 s until its next sign, 60 s of NFS, 10 s until our look"
    found = clock.hang(30)
    assert found is not None and found.rank == 0
    assert re.fullmatch(r"a hang: rank 0 showed no life for \d+ s \(while: training\)", found.text)


def test_what_the_supervisor_itself_was_suspended_for_does_not_count(clock: Clock) -> None:
    """A laptop that slept; ranks come back after it."""
    assert clock.hang(60) is None
    clock.time += 3600
    assert clock.hang(25) is None
    assert clock.hang(30) is not None


@pytest.mark.parametrize("stopped_s", [80, 90, 300])
def test_ranks_that_are_stopped_together_do_not_hang(cell, clock: Clock, stopped_s: int) -> None:
    with subprocess.Popen(["sleep", "240"]) as rank:
        try:
            sign = {"host": os.uname().nodename, "pid": rank.pid}
            rank_file(cell, 0, "beat").write_text(json.dumps(sign))
            rank.send_signal(signal.SIGSTOP)
            wait_until(lambda: is_stopped(rank.pid), "the stop", timeout_s=20)
            assert clock.hang(stopped_s) is None
            rank.send_signal(signal.SIGCONT)
            wait_until(lambda: not is_stopped(rank.pid), "the end of the stop", timeout_s=20)
            assert clock.hang(50) is None, "it has time for a sign"
            assert clock.hang(60) is not None
        finally:
            rank.kill()


def test_a_file_server_that_is_away_makes_no_rank_hang(
    cell: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(cell, 0, "training", 0)
    assert clock.hang(30) is None
    with monkeypatch.context() as errors:
        stale(errors, cell)
        assert clock.hang(600) is None
    assert clock.hang(60) is None, "and from then on"
    assert clock.hang(60) is not None
