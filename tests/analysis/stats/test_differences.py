"""Tests of differences against scipy, by definition, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as reference

from analysis.stats.differences import (
    NO_VARIANCE,
    differences,
    equivalence,
    family,
    ratios,
    welch,
)
from analysis.stats.intervals import NO_RUNS, Moments, moments
from analysis.stats.levels import ALPHA

NAN = math.nan


def difference(arm: list[float], other: list[float]) -> dict[str, object]:
    return differences(moments(arm), moments(other)).to_dict("records")[0]


def joined(*sets: list[float]) -> Moments:
    """Several sets of runs, one element each."""
    return Moments(*(np.concatenate(parts) for parts in zip(*map(moments, sets), strict=True)))


def test_welch_with_one_constant_arm_is_a_one_sample_test() -> None:
    arm = [0.40, 0.45, 0.41]
    test = reference.ttest_1samp(arm, 0.10)
    assert difference(arm, [0.10, 0.10, 0.10])["p"] == pytest.approx(test.pvalue, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "n_other", "own"),
    [(3, 3, True), (4, 5, True), (8, 10, True), (10, 40, True), (2, 3, False), (3, 4, False),
     (9, 12, False)],
)  # fmt: skip
def test_unequal_few_runs_have_the_degrees_of_freedom_of_the_smaller(
    n: int, n_other: int, own: bool
) -> None:
    rng = np.random.default_rng(n)
    arm, other = rng.normal(size=n), rng.normal(size=n_other)
    found = welch(moments(arm), moments(other))
    test = reference.ttest_ind(arm, other, equal_var=False)
    assert found.df[0] == pytest.approx(test.df if own else n - 1)
    t = abs(test.statistic)
    assert found.p[0] == pytest.approx(2 * reference.t.sf(t, test.df if own else n - 1))


def test_what_cannot_be_known_is_said() -> None:
    single = difference([0.5], [0.4])
    assert (round(single["value"], 9), single["note"]) == (0.1, "n=1") and math.isnan(single["p"])
    assert difference([0.5, 0.6], [0.4])["note"] == "n=1 in one of the two"
    assert difference([0.5] * 3, [0.4] * 3)["note"] == NO_VARIANCE.format("")
    assert difference([], [0.4])["note"] == NO_RUNS


def test_ratios_as_scipy_on_logarithms() -> None:
    fast, slow = np.log([390.0, 380.0, 401.0]), np.log([101.0, 99.0, 100.5])
    found = ratios(moments(fast), moments(slow)).iloc[0]
    low, high = reference.ttest_ind(fast, slow, equal_var=False).confidence_interval(0.95)
    expected = (fast.mean() - slow.mean(), low, high)
    assert (found["value"], found["low"], found["high"]) == pytest.approx(np.exp(expected))


def test_a_family_has_bonferronis_intervals() -> None:
    arms, base = [[0.50, 0.53, 0.49], [0.44, 0.41, 0.46]], [0.40, 0.41, 0.42]
    found = family(joined(*arms, []), joined(base, base, base), 4)
    tests = [reference.ttest_ind(arm, base, equal_var=False) for arm in arms]
    assert found.p == pytest.approx([*(test.pvalue for test in tests), NAN], nan_ok=True)
    for i, test in enumerate(tests):
        assert found.value[i] == pytest.approx(np.mean(arms[i]) - np.mean(base))
        wide = test.confidence_interval(1 - ALPHA / 4)
        assert (found.low[i], found.high[i]) == pytest.approx(tuple(wide))


def test_a_calm_reference_makes_a_family_cautious() -> None:
    """Arms of many times the spread of their reference: there Welch's df are too many."""
    base, arms = [0.400, 0.401, 0.402], [[0.44, 0.47, 0.41], [0.50, 0.47, 0.53]]
    sides = joined(*arms), joined(base, base)
    alone = welch(*sides)
    assert (alone.df > 2).all(), "a row alone keeps Welch's"
    expected = 2 * reference.t.sf(alone.value / alone.error, 2)
    assert family(*sides, 2).p == pytest.approx(expected)
    assert family(joined(arms[0]), joined(base), 1).p == pytest.approx(alone.p[:1])


def test_equality_as_two_one_sided_tests_of_scipy() -> None:
    arm, other = [0.800, 0.803, 0.798], [0.801, 0.799, 0.802]
    sides = [
        reference.ttest_ind(np.add(arm, by), other, equal_var=False, alternative=which).pvalue
        for by, which in ((0.01, "greater"), (-0.01, "less"))
    ]
    assert equivalence(moments(arm), moments(other), 0.01) == pytest.approx([max(sides)])
