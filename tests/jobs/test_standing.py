"""What is told before a sweep and after it, and how ends of ranks are sorted."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.cell.ranks import Ended, bad_ends
from jobs.cell.state import UNREADABLE, CellState
from jobs.config.load import load_sweep
from jobs.display import say_results, say_standing
from tests.builders import config

QUICK = load_sweep("quickstart")


def standing(status: str, seed: int = 0, why: str = "because") -> CellState:
    one = config(seed=seed)
    return CellState(one, Path("/nowhere") / one.cell_id(), status, why)


def test_bad_ends_are_those_of_the_ranks_own() -> None:
    ended = {
        2: Ended(1, 1.0, False), 0: Ended(0, 1.0, False), 1: Ended(85, 1.0, False),
        3: Ended(-9, 1.0, True), 4: Ended(-11, 1.0, False),
    }  # fmt: skip
    assert list(bad_ends(ended)) == [2, 4]


@pytest.mark.parametrize(
    ("results", "code"),
    [({"a": "completed", "b": "diverged"}, 0), ({"a": "completed", "b": "failed"}, 1),
     ({"a": "completed"}, 1), ({"a": "completed", "b": "lost"}, 1),
     ({"a": "completed", "b": UNREADABLE}, 3), ({"a": "failed", "b": UNREADABLE}, 1)],
)  # fmt: skip
def test_a_cell_without_a_result_did_not_complete(results: dict[str, str], code: int) -> None:
    assert say_results(QUICK, [standing("new"), standing("new", 1)], results) == code


def test_skipped_cells_count_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [standing("completed"), standing("diverged", 1), standing("new", 2)]
    assert say_results(QUICK, cells, {"x": "completed"}) == 0
    assert "2 completed, 1 diverged" in capsys.readouterr().err


def test_what_is_said_before(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [standing("completed"), standing("failed", 1, "a fault"), standing("new", 2),
             standing("running", 3, "elsewhere"), standing(UNREADABLE, 4, "EIO")]  # fmt: skip
    say_standing(QUICK, cells)
    said = capsys.readouterr().err
    assert "5 cells, 3 to run" in said
    assert "(1 completed): these are skipped" in said
    assert "failed (a fault): is run again" in said
    assert "running (elsewhere): is waited for" in said
    assert "unreadable record (EIO): is left alone" in said
    assert said.count("[sweep]") == 5


def test_a_cell_that_was_left_alone_is_neither_done_nor_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert say_results(QUICK, [standing("completed"), standing(UNREADABLE, 1)], {}) == 3
    said = capsys.readouterr().err
    assert "1 completed, 1 unreadable record" in said and "1 cells were left alone" in said
    assert "did not complete" not in said
