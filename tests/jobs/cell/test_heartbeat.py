"""Who has gone silent, and who hangs, by what ranks wrote and when."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from jobs.cell import heartbeat
from jobs.cell.heartbeat import NEVER, Watch, blame, read_sign
from train.distributed.watchdog import BEAT_S, SIGN_BYTES
from train.record.cell_folder import rank_file

NOW = time.time()


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


def beat(
    cell: Path, rank: int, phase: str, idle_s: float, *, at: float = NOW, asleep_s: float = 0.0
) -> None:
    file = rank_file(cell, rank, "beat")
    sign = {"phase": phase, "idle_s": idle_s, "asleep_s": asleep_s, "beat_s": BEAT_S}
    file.write_text(json.dumps(sign).ljust(SIGN_BYTES - 1) + "\n")
    os.utime(file, (at, at))


def test_half_a_sign_is_one_and_none_is_none(cell: Path) -> None:
    beat(cell, 0, "training", 1.5)
    file = rank_file(cell, 0, "beat")
    whole = file.read_text()
    assert read_sign(cell, 0)[:4] == (0, pytest.approx(NOW), "training", 1.5)
    for half in ("", whole[:20], whole[30:]):
        file.write_text(half)
        assert read_sign(cell, 0).at is not None and read_sign(cell, 0).phase == "unknown"
    file.write_text(whole.strip() + "\nthe end of a longer line")
    assert read_sign(cell, 0).phase == "training"
    assert read_sign(cell, 1)[:3] == (1, None, NEVER)


def test_a_hang_names_the_silent_rank_however_late_it_is_looked_at(cell: Path) -> None:
    """Rank 0 waited, its watchdog ended it; rank 1 was stopped. All are long dead now."""
    beat(cell, 0, "all-reduce", 300.4, at=NOW - 100)
    beat(cell, 1, "reading data", 0.1, at=NOW - 400)
    what, others, rank = blame(cell, 2, 0)
    assert (what, rank) == ("a hang: rank 1 shows no life (while: reading data)", 1)
    assert others == "rank 0: all-reduce; rank 1: reading data"


def test_the_rank_that_was_stopped_is_named_though_it_was_woken_to_be_ended(cell: Path) -> None:
    beat(cell, 0, "training step 5 of 11", 9.3)
    beat(cell, 1, "training step 5 of 11", 9.1, at=NOW + 0.4, asleep_s=9.0)
    what, _, rank = blame(cell, 2, 0)
    assert rank == 1 and "shows no life" in what


def test_a_suspension_of_all_is_nobodys_fault(cell: Path) -> None:
    """Rank 0 makes no progress in its all-reduce, and rank 1 was stopped once more after it."""
    beat(cell, 0, "all-reduce", 9.3, asleep_s=60.1)
    beat(cell, 1, "training step 5 of 11", 9.1, at=NOW + 0.4, asleep_s=69.0)
    assert blame(cell, 2, 0)[2] == 1
    beat(cell, 1, "all-reduce", 9.1, asleep_s=60.0)
    what, _, rank = blame(cell, 2, 0)
    assert rank == 0 and "made no progress for 9 s" in what


@pytest.mark.parametrize("since_s", [0.0, BEAT_S - 1])
def test_where_all_are_alive_the_one_that_stopped_first_is_named(cell: Path, since_s) -> None:
    """Rank 1 waits for it, and wrote its last sign when it was due; it may be idle for longer when
    it is ended than rank 0 ever was."""
    beat(cell, 0, "loading the data", 300.2, at=NOW - 5)
    beat(cell, 1, "all-reduce", 299.9 - since_s, at=NOW - 5 - since_s)
    assert blame(cell, 2, 0)[2] == 0
    beat(cell, 1, "all-reduce", 304.9)
    what, _, rank = blame(cell, 2, 0)
    assert (what, rank) == (
        "a hang: rank 0 made no progress for 300 s (while: loading the data)", 0,
    )  # fmt: skip


def test_a_rank_without_a_sign_is_named_first(cell: Path) -> None:
    beat(cell, 0, "all-reduce", 300.0)
    beat(cell, 1, "all-reduce", 300.0, at=NOW - 400)
    what, _, rank = blame(cell, 3, 0)
    assert (what, rank) == ("a hang: rank 2 shows no life (while: it never started)", 2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("BEAT_S", 0.2), ("CACHED_S", 0.0), ("LOOK_S", 0.0)):
        monkeypatch.setattr(heartbeat, name, seconds)


def test_signs_are_timed_by_our_clock_alone(cell: Path, clock: None) -> None:
    """A laptop that slept, a clock that was set, a file server an hour ahead or behind."""
    watch = Watch(cell, 1, stall_s=0.0)
    for hour in (-1, 5, -3, 0, 9):
        beat(cell, 0, "training", 0, at=time.time() + 3600 * hour)
        assert watch.hang() is None
        time.sleep(0.15)
    time.sleep(0.15)
    hang = watch.hang()
    assert hang is not None and hang.rank == 0
    assert hang.text == "a hang: rank 0 showed no life for 0 s (while: training)"


def test_a_rank_that_is_well_is_seen_within_the_limit(cell: Path) -> None:
    """The next sign, the age of a cache and the next look, whatever the limit of a stall."""
    assert Watch(cell, 1, stall_s=5.0).limit_s > 15 + 60 + 10
    watch = Watch(cell, 1, stall_s=5.0)
    assert watch.hang() is None
    seen = dict(watch._seen)
    beat(cell, 0, "training", 0)
    assert watch.hang() is None and watch._seen == seen, "not at every poll"
