"""Intervals against scipy, a printed table, or worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from analysis.stats.intervals import (
    IDENTICAL,
    NO_RUNS,
    Kind,
    estimate,
    grouped_moments,
    means,
    share,
)
from analysis.table import Estimate

RUNS = st.lists(st.floats(0.01, 100), min_size=2, max_size=8)


def mean(runs: list[float], kind: Kind = "real") -> Estimate:
    row = means(runs, np.zeros(len(runs), int), 1, kind).iloc[0]
    return estimate(*row[["value", "low", "high", "n", "note"]])


@given(RUNS, st.sampled_from([("real", np.array, float), ("positive", np.log, np.exp)]))
def test_means_as_scipy(runs: list[float], kind: tuple[Kind, Any, Any]) -> None:
    """Of a positive quantity the geometric mean, with the interval of the logarithm."""
    name, to, back = kind
    found, values = mean(runs, name), to(runs)
    assert found.value == pytest.approx(back(values.mean()))
    if found.low is None:  # equal values
        assert np.ptp(values) == pytest.approx(0, abs=1e-9)
        return
    error = np.std(values, ddof=1) / math.sqrt(len(runs))
    low, high = reference.t.interval(0.95, len(runs) - 1, values.mean(), error)
    assert (found.low, found.high) == pytest.approx((back(low), back(high)), rel=1e-9, abs=1e-9)


def test_a_share_is_cut_where_it_ends_and_says_so() -> None:
    """0.992 ± 0.035, as once printed, reaches above 1."""
    found = mean([0.975, 0.9999, 1.0], "share")
    plain = mean([0.975, 0.9999, 1.0])
    assert plain.high > 1
    assert (found.low, found.high) == (pytest.approx(plain.low), 1.0)
    assert "cut at 1" in found.note
    assert "cut at 0:" in mean([0.0, 0.0001, 0.02], "share").note
    both = mean([0.1, 0.9], "share")
    assert (both.low, both.high) == (0, 1) and "0 and 1" in both.note
    assert mean([0.74, 0.75, 0.76], "share").note is None


def test_too_little_for_an_interval_says_why() -> None:
    assert mean([]) == Estimate(None, n=0, note=NO_RUNS)
    assert mean([0.7]) == Estimate(0.7, n=1, note="n=1")
    # equal values leave a spread of rounding: that is no interval of zero width
    assert mean([0.1] * 3) == (pytest.approx(0.1), None, None, 3, IDENTICAL)


def test_what_has_no_logarithm_is_refused() -> None:
    with pytest.raises(ValueError, match="positive values, found 0"):
        mean([1.0, 0.0], "positive")
    with pytest.raises(ValueError, match="positive"):
        mean([-1.0], "positive")
    assert mean([], "positive").value is None


def test_many_sets_at_once_are_each_as_alone() -> None:
    runs = {0: [0.5, 0.6, 0.7], 1: [], 2: [0.9], 3: [0.99, 1.0], 4: [0.2, 0.2]}
    values = [value for own in runs.values() for value in [*own, math.nan]]
    groups = np.array([i for i, own in runs.items() for _ in [*own, 0]])
    order = np.random.default_rng(0).permutation(len(values))
    found = means(np.array(values)[order], groups[order], len(runs), "share")
    for i, own in runs.items():
        alone = mean(own, "share")
        assert found.loc[i, "n"] == alone.n and found.loc[i, "note"] == alone.note
        for part in ("value", "low", "high"):
            expected = getattr(alone, part)
            assert found.loc[i, part] == pytest.approx(
                math.nan if expected is None else expected, nan_ok=True
            )


def test_moments_are_those_of_numpy() -> None:
    runs = np.random.default_rng(0).normal(1000, 1e-3, (4, 6))
    found = grouped_moments(runs.ravel(), np.repeat(np.arange(4), 6), 4)
    assert found.mean == pytest.approx(runs.mean(1))
    # no cancellation, though the mean is a million times the spread
    assert found.sd == pytest.approx(runs.std(1, ddof=1), rel=1e-6)


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_share_of_runs_as_scipy(counted: tuple[int, int]) -> None:
    k, n = counted
    found, exact = share(k, n), reference.binomtest(k, n).proportion_ci(0.95, "exact")
    assert found == (k / n, pytest.approx(exact.low), pytest.approx(exact.high), n, None)
    assert share(0, 0) == Estimate(None, n=0, note=NO_RUNS)
