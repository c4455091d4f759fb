"""Further runs: power against simulation and published numbers, and what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as reference

from analysis.stats.intervals import Moments
from analysis.stats.levels import POWER
from analysis.stats.power import (
    ENOUGH,
    FEWEST,
    NO_SPREAD,
    TOO_MANY,
    further_runs,
    sd_bound,
    welch_power,
)


def arm(n: float, sd: float) -> Moments:
    return Moments(*(np.array([float(value)]) for value in (n, 0.0, sd)))


def with_bound(n: int, bound: float) -> Moments:
    """Runs whose standard deviation has this upper bound."""
    return arm(n, bound / float(sd_bound(1.0, n)))


def test_a_standard_deviation_is_taken_at_its_upper_bound() -> None:
    assert sd_bound(2.0, 3) == pytest.approx(2 * math.sqrt(2 / reference.chi2.ppf(0.2, 2)))


@pytest.mark.parametrize(("sd", "n", "alpha"), [(1.0, 7, 0.05), (3.0, 12, 0.05), (2.0, 8, 0.005)])
def test_power_as_simulated(sd: float, n: int, alpha: float) -> None:
    rng = np.random.default_rng(0)
    runs, others = rng.normal(1.5, sd, (40_000, n)), rng.normal(0, 1, (40_000, n))
    p = reference.ttest_ind(runs, others, axis=1, equal_var=False).pvalue
    # Welch's df at the true sds are not the estimated ones: 0.02 apart at these n
    assert welch_power(1.5, sd, 1.0, n, alpha) == pytest.approx((p < alpha).mean(), abs=0.02)


@pytest.mark.parametrize(
    ("effect", "runs"),
    # Cohen 1988, two-sided .05, power .80, equal sds, where Welch's df are the pooled ones
    [(0.2, 394), (0.5, 64), (0.8, 26), (0.2 / 0.15, 10), (0.5 / 0.15, 3), (0.2 / 0.3, 37)],
)
def test_further_runs_make_the_published_numbers_full(effect: float, runs: int) -> None:
    found = further_runs(with_bound(2, 1.0), with_bound(2, 1.0), margin=effect)
    assert found.runs == pytest.approx([runs - 2])
    assert found.notes == [None]


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 66])
def test_further_runs_are_enough_and_not_one_too_many(alpha: float) -> None:
    rng = np.random.default_rng(0)
    sds = 10 ** rng.uniform(-3.5, -1, (2, 200))
    sides = [Moments(np.full(200, 3.0), np.zeros(200), sd) for sd in sds]
    n = 3 + further_runs(*sides, alpha=alpha).runs
    bounds = [sd_bound(sd, 3) for sd in sds]
    assert (welch_power(0.02, *bounds, n, alpha) >= POWER).all()
    more = n > FEWEST
    assert more.sum() > 100
    assert (welch_power(0.02, *(b[more] for b in bounds), n[more] - 1, alpha) < POWER).all()


def test_power_never_falls_as_runs_are_added() -> None:
    """scipy's noncentral t has holes far out in its tail."""
    power = welch_power(0.02, 0.011, 0.0025, np.arange(3, 5_000), 0.05 / 66)
    assert (np.diff(power) > -1e-9).all()
    assert welch_power(0.02, 1e-13, 1e-13, 5) == 1


def test_unequal_arms_count_from_the_smaller() -> None:
    found = further_runs(with_bound(4, 1.0), with_bound(9, 1.0), margin=0.5)
    assert found.runs == pytest.approx([64 - 4])


def test_what_no_number_can_say_is_said_in_words() -> None:
    # identical runs do not show a spread of 0
    for few in (arm(1, math.nan), arm(3, 0.0)):
        found = further_runs(few, arm(3, 1.0))
        assert np.isnan(found.runs).all() and found.notes == [NO_SPREAD]
    many = further_runs(arm(3, 1.0), arm(3, 1.0), margin=0.001)
    assert np.isinf(many.runs).all() and many.notes == [TOO_MANY]
    assert "10,000" in TOO_MANY
    done = further_runs(arm(30, 0.01), arm(30, 0.01))
    assert done.runs == [0] and done.notes == [ENOUGH.format(0.02)]
