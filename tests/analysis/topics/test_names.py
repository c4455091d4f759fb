"""What several topics share: names of rows, ranks, reasons."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.topics.names import batch_text, reasons


@pytest.mark.parametrize(
    ("first", "last", "shown"),
    [(16, 16, "16"), (16, pd.NA, "16"), (16, 4096, "16 → 4,096"), (pd.NA, pd.NA, "n/a")],
)
def test_a_batch_shows_what_it_grew_to(first: object, last: object, shown: str) -> None:
    assert batch_text(first, last) == shown


def test_equal_reasons_are_said_once_in_their_order() -> None:
    assert reasons(["b", None, "a", pd.NA, "b"]) == "b; a"
    column = pd.Series(["b", None, "a", pd.NA, "b"], dtype="string")
    assert reasons(column) == "b; a" and reasons(column[[1, 3]]) is None
    assert reasons([None, pd.NA]) is None and reasons([]) is None
