"""The table of the proof: the worst of each row is shown, and a gap is no pass."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from tests.invariants import (
    FINDINGS,
    WHOLE,
    Finding,
    missing,
    pytest_sessionfinish,
    table_of,
)


@pytest.mark.parametrize(
    ("error", "holds"),
    [(0.0, True), (1e-5, True), (-1e-5, True), (2e-5, False), (-2e-5, False), (math.nan, False),
     (math.inf, False)],
)  # fmt: skip
def test_what_holds(error: float, holds: bool) -> None:
    assert Finding("T6 LARS", "a step", error, 1e-5).holds is holds


def test_the_worst_error_of_a_row_is_in_the_table_in_the_order_of_numbers() -> None:
    errors = {"S5 Muon": (0.0,), "T10 LARS": (1e-7, -3e-6, 1e-6), "T2 a": (0.0,)}
    table = table_of([Finding(n, "a step", e, 1e-5) for n, own in errors.items() for e in own])
    cells = [list(column.cells) for column in table.columns]
    assert cells[0] == ["T2 a", "T10 LARS", "S5 Muon"]
    assert [column[1] for column in cells[2:]] == ["-3e-06", "1e-05", "[green]holds[/]"]


def test_what_no_test_reported_is_missing() -> None:
    found = [Finding(f"{number} x", "a step", 0, 0) for number in WHOLE]
    assert missing(found) == []
    less = [one for one in found if one.technique not in ("T12 x", "T7 x", "S5 x")]
    assert missing(less) == ["T7", "T12", "S5"]


@pytest.mark.parametrize(("asked", "whole", "status"), [
    (True, True, 0), (True, False, 1), (False, False, 0),
])  # fmt: skip
def test_a_gap_fails_the_run_where_the_whole_proof_is_asked_for(
    asked: bool, whole: bool, status: int
) -> None:
    found = [Finding(f"{number} x", "a step", 0, 0) for number in WHOLE]
    config = SimpleNamespace(
        getoption=lambda name: {"--whole-proof": asked}[name],
        stash={FINDINGS: found if whole else found[1:]},
    )
    session = SimpleNamespace(config=config, exitstatus=0)
    pytest_sessionfinish(session)
    assert session.exitstatus == status
