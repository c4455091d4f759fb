"""Numbers as readers see them, and tables of typed columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from analysis import fmt
from analysis.table import (
    FIRST_ROWS,
    MOST_SORTED,
    Column,
    Estimate,
    Table,
    estimate_in,
    frame,
    plain_rows,
    types,
)

COLUMNS = (
    Column("name", "string", "name"),
    Column("share", "Float64", "share", "of all", estimate=True, format=fmt.number(2)),
    Column("n", "Int64", "runs", only_if_varied=True),
    Column("seconds", "Float64", "time", unit="s", note="seconds_why"),
    Column("seconds_why", "string"),
    Column("both", None, "name and runs", cell=lambda row: f"{row['name']}: {row['n']}"),
)


def row(name: str, n: int, seconds: float | None, share: Estimate, **why: Any) -> dict[str, Any]:
    return {"name": name, "n": n, "seconds": seconds, **share.columns("share"), **why}


def made(*rows: dict[str, Any], **changes: Any) -> Table:
    return Table("key", "Title", COLUMNS, frame(rows, COLUMNS), **changes)


FIRST = row("a", 3, 12.5, Estimate(0.5, 0.25, 0.75, 3))
SECOND = row("b", 4, None, Estimate(None, note="lost"), seconds_why="no clock")


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (Estimate(0.5, 0.25, 0.75, 3), "0.50 (0.25 to 0.75)"),
        (Estimate(0.5, n=1, note="n=1"), "0.50"),
        (Estimate(40.0, 40.0, None, 2), "> 40.00"),
        (Estimate(40.0, None, 50.0, 2), "< 50.00"),
        (Estimate(None, note="lost"), "n/a"),
        (Estimate(None, 0.25, 0.75), "n/a"),
    ],
)
def test_an_estimate_has_one_form(found: Estimate, shown: str) -> None:
    assert found.text(fmt.number(2)) == shown


def test_names_are_in_the_order_of_their_numbers() -> None:
    names = ["5e-05", "0.05", "10.0.0.2", "10.0.0.10", "16", "1,024", "node2", "node10"]
    assert sorted(sorted(names), key=fmt.by_number) == names
    assert fmt.few([*"abcde"]) == [*"abc", "2 more in the table"]


def test_an_estimate_fills_its_columns_and_comes_back() -> None:
    data = frame([FIRST], COLUMNS)
    assert [name for name in data if name.startswith("share")] == [
        "share", "share_low", "share_high", "share_n", "share_note",
    ]  # fmt: skip
    found = estimate_in(plain_rows(data)[0], "share")
    assert found == Estimate(0.5, 0.25, 0.75, 3, None)


def test_a_frame_has_nullable_types_even_without_a_row() -> None:
    empty = frame([], COLUMNS)
    assert len(empty) == 0
    assert {name: str(kind) for name, kind in empty.dtypes.items()} == types(COLUMNS)
    assert "both" not in empty, "it is only shown"
    assert frame([SECOND], COLUMNS)["seconds"][0] is pd.NA


def test_a_table_shows_its_rows_with_reasons_below() -> None:
    shown = made(FIRST, SECOND).shown()
    assert [column.title for column in shown.columns] == [
        "name", "share", "runs", "time (s)", "name and runs",
    ]  # fmt: skip
    assert shown.rows == (
        ("a", "0.50 (0.25 to 0.75)", "3", "12.5", "a: 3"),
        ("b", "n/a\u00a0¹", "4", "n/a\u00a0²", "b: 4"),
    )
    assert shown.notes == ("¹ lost", "² no clock")
    assert shown.footnotes == (("share", "of all"),)
    assert [column.align for column in shown.columns] == ["left", "right", "right", "right", "left"]


def test_what_does_not_vary_is_not_shown_and_of_very_many_rows_the_first() -> None:
    long = made(*[FIRST] * 5).shown(2)
    assert [column.heading for column in long.columns] == ["name", "share", "time", "name and runs"]
    assert [row[-1] for row in long.rows] == ["a: 3"] * 2, "a cell may still say it"
    whole = made(*[FIRST] * MOST_SORTED)
    assert len(whole.shown().rows) == MOST_SORTED
    assert len(made(*[FIRST] * (MOST_SORTED + 1)).shown().rows) == FIRST_ROWS
    assert (made().shown().rows, made().shown().notes) == ((), ())


def test_a_reason_has_one_number_per_table() -> None:
    whys = ["no clock", "", *map(str, range(11)), "no clock"]
    shown = made(*[{**SECOND, "seconds_why": why} for why in whys]).shown()
    times = [row[2].removeprefix("n/a").strip() for row in shown.rows]
    assert times == ["²", "", *"³⁴⁵⁶⁷⁸⁹", "¹⁰", "¹¹", "¹²", "¹³", "²"]
    assert shown.notes[:3] == ("¹ lost", "² no clock", "³ 0")


@pytest.mark.parametrize(
    ("write", "value", "shown"),
    [
        (fmt.significant, 1234.5, "1,234"),  # half to even, as everywhere in Python
        (fmt.significant, 181.49, "181"),
        (fmt.significant, 98.37, "98.4"),
        (fmt.significant, 0.01234, "0.0123"),
        (fmt.significant, 0.0, "0"),
        (fmt.significant, math.inf, "∞"),
        (fmt.significant, None, "n/a"),
        (fmt.number(1), 12_345.67, "12,345.7"),
        (fmt.count, 50_000, "50,000"),
        (fmt.percent, 0.204, "20 %"),
        (fmt.signed(2), -0.1, "-0.10"),
        (fmt.signed(2), 0.25, "+0.25"),
        (fmt.p_value, 0.0004, "< 0.001"),
        (fmt.p_value, 0.0426, "0.043"),
        (fmt.runs, 1, "1 run"),
        (fmt.runs, 1200, "1,200 runs"),
        # what is not zero is not written as zero
        (fmt.significant, 1.2e-7, "1.2e-07"),
        (fmt.significant, -3.456e-9, "-3.46e-09"),
        (fmt.significant, 0.000123, "0.000123"),
        (fmt.number(3), 0.0004, "0.0004"),
        (fmt.signed(3), -0.0002, "-0.0002"),
        (fmt.signed(3), 1e-17, "+0.000"),
        (fmt.percent, 0.004, "0.4 %"),
        (fmt.signed_percent, -0.0003, "-0.03 %"),
        (fmt.percent, 0.0, "0 %"),
        # nor is what is not 1 written as 1: an interval that decides would read 1.00 to 1.01
        (fmt.TWO, 0.9999, "0.9999"),
        (fmt.TWO, 0.9951, "0.995"),
        (fmt.THREE, 0.9996, "0.9996"),
        (fmt.TWO, 1.0021, "1.002"),
        (fmt.TWO, 1 + 1e-13, "1.00"),
        (fmt.TWO, 1.006, "1.01"),
        (fmt.TWO, 1234.5, "1,234.50"),
        (fmt.percent, 0.9996, "99.96 %"),
        (fmt.percent, 1.0, "100 %"),
        *((write, pd.NA, "n/a")
          for write in (fmt.number(3), fmt.signed(3), fmt.count, fmt.percent, fmt.p_value)),
    ],
)  # fmt: skip
def test_a_number_as_readers_see_it(write: Callable[[Any], str], value: Any, shown: str) -> None:
    assert write(value) == shown
