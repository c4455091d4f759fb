"""Every formula against scipy, numpy, a published table or a number worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from analysis import stats

VALUES = st.floats(0.01, 100)
ARMS = st.lists(VALUES, min_size=2, max_size=8)


def test_mean_of_three_by_hand() -> None:
    found = stats.mean_t([1.0, 2.0, 3.0])
    assert (found.n, found.mean, found.sd, found.why) == (3, 2.0, 1.0, None)
    # t(0.975, 2) = 4.302653 from any printed table
    assert found.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


@given(ARMS)
def test_mean_as_scipy(arm: list[float]) -> None:
    found = stats.mean_t(arm)
    error = np.std(arm, ddof=1) / math.sqrt(len(arm))
    if found.sd == 0:  # equal values: scipy has no interval of zero width
        assert np.ptp(arm) == pytest.approx(0, abs=1e-9)
        return
    low, high = reference.t.interval(0.95, len(arm) - 1, np.mean(arm), error)
    assert found.mean - found.half_width == pytest.approx(low, rel=1e-9, abs=1e-9)
    assert found.mean + found.half_width == pytest.approx(high, rel=1e-9, abs=1e-9)


def test_one_run_has_a_mean_and_no_interval() -> None:
    assert stats.mean_t([0.7]) == stats.Mean(1, 0.7, None, None, "n=1")


def test_no_run_has_nothing() -> None:
    found = stats.mean_t([])
    assert (found.n, found.mean, found.half_width) == (0, None, None)
    assert found.why == stats.NO_RUNS


def test_equal_values_have_no_spread_from_rounding() -> None:
    assert stats.mean_t([0.1] * 3).sd == 0.0


@given(st.lists(VALUES, min_size=1, max_size=8))
def test_geometric_mean_as_scipy(values: list[float]) -> None:
    assert stats.geometric_mean(values) == pytest.approx(reference.gmean(values))


def test_geometric_mean_refuses_what_has_no_logarithm() -> None:
    with pytest.raises(ValueError, match="positive"):
        stats.geometric_mean([1.0, 0.0])


def test_ratio_as_scipy_on_logarithms() -> None:
    fast, slow = [390.0, 380.0, 401.0], [101.0, 99.0, 100.5, 98.0]
    found = stats.ratio_t(fast, slow, scale=0.25)
    test = reference.ttest_ind(np.log(fast), np.log(slow), equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert found.value == pytest.approx(0.25 * reference.gmean(fast) / reference.gmean(slow))
    assert found.low == pytest.approx(0.25 * math.exp(low), rel=1e-9)
    assert found.high == pytest.approx(0.25 * math.exp(high), rel=1e-9)


def test_the_spread_of_the_baseline_is_in_the_ratio() -> None:
    fast = [390.0, 395.0, 400.0]
    calm = stats.ratio_t(fast, [100.0, 100.1, 99.9])
    noisy = stats.ratio_t(fast, [100.0, 120.0, 80.0])
    assert noisy.high - noisy.low > 5 * (calm.high - calm.low)


def test_ratio_of_single_runs_has_a_value_and_no_interval() -> None:
    found = stats.ratio_t([180.0], [100.0], 0.5)
    assert (found.value, found.low, found.why) == (pytest.approx(0.9), None, "n=1")
    assert stats.ratio_t([180.0, 181.0], [100.0]).why == "n=1 in one of the two"
    assert stats.ratio_t([], [100.0]).value is None


@given(ARMS, ARMS)
@settings(max_examples=50)
def test_welch_as_scipy(arm: list[float], other: list[float]) -> None:
    found = stats.welch(arm, other)
    assert found.value == pytest.approx(np.mean(arm) - np.mean(other), abs=1e-9)
    if stats.mean_t(arm).sd == 0 or stats.mean_t(other).sd == 0:
        return  # scipy warns of cancellation; the next test has the case by hand
    test = reference.ttest_ind(arm, other, equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert found.p == pytest.approx(test.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)


def test_welch_with_one_constant_arm_is_a_one_sample_test() -> None:
    arm = [0.40, 0.45, 0.41]
    test = reference.ttest_1samp(arm, 0.10)
    assert stats.welch(arm, [0.10, 0.10, 0.10]).p == pytest.approx(test.pvalue, rel=1e-9)


def test_welch_says_what_it_cannot_know() -> None:
    single = stats.welch([0.5], [0.4])
    assert (round(single.value, 9), single.p, single.why) == (0.1, None, "n=1")
    assert stats.welch([0.5, 0.6], [0.4]).why == "n=1 in one of the two"
    assert stats.welch([0.5] * 3, [0.4] * 3).why == stats.NO_VARIANCE
    assert stats.welch([], [0.4]) == stats.Difference(None, None, None, None, stats.NO_RUNS)


def test_holm_by_hand() -> None:
    # 3 x .01; 2 x .03; then 1 x .04 raised to the one before it
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_holm_counts_what_could_not_be_compared() -> None:
    assert stats.holm([0.02, None, None]) == [pytest.approx(0.06), None, None]


@given(st.lists(st.floats(0, 1), max_size=7))
def test_holm_as_defined(p_values: list[float]) -> None:
    """Adjusted p = the smallest level at which the step-down procedure rejects."""
    adjusted = stats.holm(p_values)
    for level in (0.001, 0.01, 0.05, 0.2, 0.9):
        rejected = set()
        for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
            if p_values[i] * (len(p_values) - rank) > level:
                break
            rejected.add(i)
        assert rejected == {i for i, p in enumerate(adjusted) if p <= level}


@pytest.mark.parametrize(
    ("effect", "runs"),
    # Cohen 1988, two-sided .05, power .80; the last ones from the reference notes of this project
    [(0.2, 394), (0.5, 64), (0.8, 26), (0.2 / 0.15, 10), (0.5 / 0.15, 3), (0.2 / 0.3, 37),
     (0.5 / 0.3, 7), (0.5 / 0.6, 24)],
)  # fmt: skip
def test_seeds_as_published(effect: float, runs: int) -> None:
    assert stats.seeds_to_decide(effect, 1.0) == stats.SeedCount(runs, None)
    assert stats.seeds_to_decide(-effect, 1.0).n == runs


@given(st.floats(0.05, 50), st.sampled_from([0.05, 0.05 / 7]))
@settings(max_examples=40)
def test_seeds_are_enough_and_not_one_too_many(effect: float, alpha: float) -> None:
    n = stats.seeds_to_decide(effect, 1.0, alpha).n
    assert stats.power_of_t_test(effect, n, alpha) >= stats.POWER
    assert n == 2 or stats.power_of_t_test(effect, n - 1, alpha) < stats.POWER


def test_power_as_simulated() -> None:
    rng = np.random.default_rng(0)
    arms = rng.normal(size=(2, 20_000, 7))
    p = reference.ttest_ind(arms[0] + 1.5, arms[1], axis=1).pvalue
    assert stats.power_of_t_test(1.5, 7) == pytest.approx((p < 0.05).mean(), abs=0.01)


@pytest.mark.parametrize(
    ("difference", "sd", "why"),
    [
        (None, 0.1, "two runs"),
        (0.1, None, "two runs"),
        (0.1, 0.0, "no variance"),
        (0.0, 0.1, "difference is zero"),
        (0.0001, 0.1, "more than 10,000"),
    ],
)
def test_seeds_unknown_with_a_reason(difference: float, sd: float, why: str) -> None:
    found = stats.seeds_to_decide(difference, sd)
    assert found.n is None
    assert why in found.why


def test_pooled_sd_by_hand() -> None:
    assert stats.pooled_sd([1.0, 3.0], [0.0, 0.0]) == pytest.approx(1.0)
    assert stats.pooled_sd([1.0], [0.0, 1.0]) is None
