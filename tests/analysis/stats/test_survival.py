"""Times to a target with runs that never reach it and runs that are lost."""

from __future__ import annotations

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from analysis.stats.survival import median_time, share_reached

INF = math.inf
TIMES = st.lists(st.sampled_from([1.0, 2.0, 2.5, 4.0, 7.0, INF]), min_size=1, max_size=9)


@given(TIMES)
def test_without_lost_runs_it_is_the_plain_median(times: list[float]) -> None:
    assert median_time(times, [False] * len(times)).value == median(times)


def test_never_reached_is_infinite_and_no_mean_of_the_others() -> None:
    found = median_time([3.0, 5.0, INF, INF, INF], [False] * 5)
    assert found.value == INF and found.low is None
    assert "not reached by 3 of 5 runs" in found.note
    assert median_time([3.0, 5.0, INF], [False] * 3).value == 5.0


def test_a_lost_run_counts_until_it_was_lost() -> None:
    # at 2: 3 of 4 left; at 4: 2 at risk, half of 3/4; the lost one left at 3
    found = median_time([2.0, 4.0, 6.0, 3.0], [False, False, False, True])
    assert (found.value, found.n, found.note) == (4.0, 3, "1 of 4 runs lost: Kaplan-Meier")
    # lost before anything was known: as if it had not been
    assert median_time([2.0, 4.0, 6.0, 0.0], [False] * 3 + [True]).value == 4.0


def test_where_lost_runs_leave_it_open_there_is_a_bound() -> None:
    found = median_time([1.0, 5.0, 6.0], [False, True, True])
    assert (found.low, found.high) == (6.0, None)
    assert found.text(str) == "> 6.0"
    # a run that never reaches it settles the question
    assert median_time([1.0, INF, INF, 6.0], [False] * 3 + [True]).value == INF


def test_all_lost_is_nothing() -> None:
    found = median_time([0.0, 2.0], [True, True])
    assert (found.value, found.note) == (None, "all 2 runs are lost")
    assert median_time([], []).value is None


@pytest.mark.parametrize(("n", "k"), [(5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (17, 5)])
def test_the_interval_is_of_the_tabled_order_statistics(n: int, k: int) -> None:
    """Ranks of any nonparametrics book: the k-th smallest to the k-th largest."""
    times = [float(i) for i in range(1, n + 1)]
    found = median_time(times, [False] * n)
    assert (found.low, found.high) == ((None, None) if k == 0 else (k, n + 1 - k))


def test_a_long_interval_ends_at_infinity() -> None:
    found = median_time([1.0, 2.0, 3.0, 4.0, INF, INF], [False] * 6)
    assert (found.value, found.low, found.high) == (3.5, 1.0, INF)


def test_the_share_that_reached_it() -> None:
    found = share_reached([1.0, INF, 3.0, 2.0], [False, False, False, True])
    exact = reference.binomtest(2, 3).proportion_ci()
    assert found.value == pytest.approx(2 / 3)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
    assert (found.n, found.note) == (3, "1 of 4 runs lost")
