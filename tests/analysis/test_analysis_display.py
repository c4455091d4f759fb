"""Numbers as readers see them."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis import display


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1234.5, "1,234"),  # half to even, as everywhere in Python
        (181.49, "181"),
        (98.37, "98.4"),
        (1.633, "1.63"),
        (0.01234, "0.0123"),
        (0.0, "0"),
        (pd.NA, "n/a"),
        (None, "n/a"),
    ],
)
def test_three_significant_digits(value: float, shown: str) -> None:
    assert display.significant(value) == shown


def test_fixed_counts_and_percent() -> None:
    assert display.number(0.12345, 3) == "0.123"
    assert display.count(50_000) == "50,000"
    assert display.percent(0.204) == "20 %"
    assert display.interval(-0.1, 0.25, 2) == "[-0.10, +0.25]"
    nulls = (display.number(pd.NA, 3), display.count(pd.NA), display.percent(pd.NA))
    assert nulls == ("n/a",) * 3


def test_a_reason_has_one_number_per_table() -> None:
    notes = display.Notes()
    assert [notes.mark(reason) for reason in ("a", "b", "a", None, pd.NA, "")] == [
        "¹", "²", "¹", "", "", "",
    ]  # fmt: skip
    assert notes.lines() == ("¹ a", "² b")
    assert notes.missing("b") == "n/a ²"


def test_more_than_nine_reasons() -> None:
    notes = display.Notes([str(i) for i in range(11)])
    assert notes.mark("11") == "¹²"


def test_a_row_of_the_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        display.Table("k", "t", (display.Column("a"), display.Column("b")), (("1",),))
