"""What several topics share: names of rows, ranks, reasons."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.topics.names import batch_text, ratio_text, reasons


@pytest.mark.parametrize(
    ("first", "last", "shown"),
    [(16, 16, "16"), (16, pd.NA, "16"), (16, 4096, "16 → 4,096"), (pd.NA, pd.NA, "n/a")],
)
def test_a_batch_shows_what_it_grew_to(first: object, last: object, shown: str) -> None:
    assert batch_text(first, last) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [(1.0, "1.00"), (1 + 1e-13, "1.00"), (1.0021, "1.002"), (0.99964, "0.9996"), (1.006, "1.01"),
     (0.98, "0.98"), (1234.5, "1,234.50"), (pd.NA, "n/a")],
)  # fmt: skip
def test_a_ratio_shows_on_which_side_of_one_it_is(ratio: object, shown: str) -> None:
    """Else an interval that decides reads 1.00 to 1.01."""
    assert ratio_text(ratio) == shown


def test_equal_reasons_are_said_once_in_their_order() -> None:
    assert reasons(["b", None, "a", pd.NA, "b"]) == "b; a"
    column = pd.Series(["b", None, "a", pd.NA, "b"], dtype="string")
    assert reasons(column) == "b; a" and reasons(column[[1, 3]]) is None
    assert reasons([None, pd.NA]) is None and reasons([]) is None
