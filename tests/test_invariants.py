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


def test_the_worst_error_of_a_row_is_in_the_table() -> None:
    errors = (1e-7, -3e-6, 1e-6)
    table = table_of([Finding("T6 LARS", "a step", error, 1e-5) for error in errors])
    assert [list(column.cells) for column in table.columns][2:] == [
        ["-3e-06"], ["1e-05"], ["[green]holds[/]"]
    ]  # fmt: skip


def test_rows_are_in_the_order_of_their_numbers() -> None:
    names = ("S5 Muon", "T10 b", "T2 a")
    table = table_of([Finding(name, "a step", 0, 0) for name in names])
    assert list(table.columns[0].cells) == ["T2 a", "T10 b", "S5 Muon"]


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
