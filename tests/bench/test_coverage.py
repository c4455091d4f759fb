"""A small one of the table in docs/statistics.md: what is printed covers and errs as it should."""

from __future__ import annotations

import math

import pytest

from tests.bench.coverage import CASES, Case, rates, table
from tests.measured import PAGE

REPEATS = 4_000
STATISTICS = PAGE.parent / "statistics.md"
#: A bootstrap and a loop per repeat are too slow for every day.
SLOW = {"mean, bootstrap", "median time", "further runs suffice"}


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.kind not in SLOW and not isinstance(case.within, str)],
    ids=lambda case: f"{case.kind}: {case.situation}",
)
def test_rates_are_within_what_is_asked_for(case: Case) -> None:
    low, high = case.within
    repeats = REPEATS // 4 if case.kind.startswith("all pairs") else REPEATS
    for n, rate in rates(case, repeats).items():
        # two standard errors of so few repeats, whose seeds are fixed
        room = 2 * math.sqrt(max(rate * (1 - rate), 1e-3) / repeats)
        assert low - room <= rate <= high + room, f"n = {n}"


def test_what_is_not_used_fails_what_is_asked_of_the_others() -> None:
    """Else there would be no reason for what is used, and the test above could not fail."""
    unused = [case for case in CASES if case.within == "not used"]
    bootstrap, single, family, *corrected = (rates(case, REPEATS, [2, 3, 5]) for case in unused)
    assert bootstrap[3] < 0.85 and all(before[5] > 0.1 for before in corrected)
    assert single[2] > 0.065 + 2 * math.sqrt(0.065 / REPEATS)
    assert family[5] > 0.05 + 2 * math.sqrt(0.05 / REPEATS)


@pytest.mark.slow
def test_the_page_has_the_table_of_this_program() -> None:
    assert table() in STATISTICS.read_text(), "python -m tests.bench.coverage prints it"
