"""The statistics of the report: t intervals over seeds, ratios on the log scale, Welch, Holm.

The unit is one full run. Nothing is computed from fewer than two runs per arm: the value is then
None and ``why`` says so. Missing inputs are the caller's to leave out, never filled here.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95  # of every interval
ALPHA = 0.05  # of every decision
POWER = 0.8
#: Above this many runs per arm the honest answer is "not by adding seeds".
MAX_SEEDS = 10_000
NO_RUNS = "no run with this value"
ONE_RUN = "n=1"
NO_VARIANCE = "the runs of both arms are identical: no variance to judge a difference by"
#: Relative spread below this is rounding, not variance between runs.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Mean:
    """Mean of n runs with the half-width of its t interval."""

    n: int
    mean: float | None
    sd: float | None
    half_width: float | None
    why: str | None  # why there is no interval


@dataclass(frozen=True)
class Ratio:
    """A ratio of two means with its interval."""

    value: float | None
    low: float | None
    high: float | None
    why: str | None  # why there is no interval, or no value at all


@dataclass(frozen=True)
class Difference:
    """Mean of one arm minus mean of the other, with Welch's interval and two-sided p."""

    value: float | None
    low: float | None
    high: float | None
    p: float | None
    why: str | None


@dataclass(frozen=True)
class SeedCount:
    """Runs per arm that would decide, or why no number can be given."""

    n: int | None
    why: str | None


@dataclass(frozen=True)
class _Welch:
    """Difference of two means in units of its standard error."""

    difference: float
    error: float
    df: float

    def half_width(self) -> float:
        return float(stats.t.ppf((1 + LEVEL) / 2, self.df) * self.error) if self.error else 0.0


def mean_t(values: Sequence[float]) -> Mean:
    """Student's t interval of the mean: ``mean ± t(n-1) sd / sqrt(n)``."""
    n = len(values)
    if n == 0:
        return Mean(0, None, None, None, NO_RUNS)
    mean = float(np.mean(values))
    if n == 1:
        return Mean(1, mean, None, None, ONE_RUN)
    sd = _sd(values)
    half = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * sd / math.sqrt(n)
    return Mean(n, mean, sd, half, None)


def geometric_mean(values: Sequence[float]) -> float | None:
    """exp(mean(log)); None without values.

    Raises:
        ValueError: a value is not positive.
    """
    if any(value <= 0 for value in values):
        raise ValueError(f"a geometric mean needs positive values, found {min(values)}")
    return math.exp(float(np.mean(np.log(values)))) if len(values) else None


def ratio_t(over: Sequence[float], under: Sequence[float], scale: float = 1.0) -> Ratio:
    """``scale`` times the ratio of geometric means, with Welch's t interval of its logarithm.

    Both arms' variances enter, so the uncertainty of a baseline is in the interval.
    """
    top, bottom = geometric_mean(over), geometric_mean(under)
    if top is None or bottom is None:
        return Ratio(None, None, None, NO_RUNS)
    value = scale * top / bottom
    if min(len(over), len(under)) < 2:
        return Ratio(value, None, None, _one_run(over, under))
    half = _welch(np.log(over).tolist(), np.log(under).tolist()).half_width()
    return Ratio(value, value * math.exp(-half), value * math.exp(half), None)


def welch(arm: Sequence[float], reference: Sequence[float]) -> Difference:
    """mean(arm) - mean(reference), unequal variances, Satterthwaite's degrees of freedom."""
    if not len(arm) or not len(reference):
        return Difference(None, None, None, None, NO_RUNS)
    difference = float(np.mean(arm) - np.mean(reference))
    if min(len(arm), len(reference)) < 2:
        return Difference(difference, None, None, None, _one_run(arm, reference))
    test = _welch(arm, reference)
    if test.error == 0:
        return Difference(difference, None, None, None, NO_VARIANCE)
    p = float(2 * stats.t.sf(abs(test.difference) / test.error, test.df))
    half = test.half_width()
    return Difference(difference, difference - half, difference + half, p, None)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjusted p values (1979), in the order given.

    A None stays None but counts in the size of the family: a planned comparison that could not be
    made must not make the others look better.
    """
    m = len(p_values)
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * m
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, (m - rank) * p))
        adjusted[i] = largest
    return adjusted


def equivalence_p(arm: Sequence[float], reference: Sequence[float], margin: float) -> float | None:
    """p of the claim that the means differ by less than ``margin`` (> 0); None where there is none.

    Two one-sided Welch tests, the larger p (Schuirmann 1987): below ALPHA exactly where the
    interval of level 1 - 2 ALPHA of the difference lies within ± margin.
    """
    if min(len(arm), len(reference)) < 2:
        return None
    test = _welch(arm, reference)
    if test.error == 0:
        return None
    room = margin - abs(test.difference)
    return float(stats.t.sf(room / test.error, test.df))


def pooled_sd(arm: Sequence[float], reference: Sequence[float]) -> float | None:
    """Root of the mean of the two variances; None with fewer than two runs in an arm."""
    if min(len(arm), len(reference)) < 2:
        return None
    return math.sqrt((_sd(arm) ** 2 + _sd(reference) ** 2) / 2)


def seeds_to_decide(difference: float | None, sd: float | None, alpha: float = ALPHA) -> SeedCount:
    """Smallest n per arm with which a two-sided t test finds ``difference`` with power 0.8."""
    if difference is None or sd is None:
        return SeedCount(None, "needs at least two runs per arm")
    if sd == 0:
        return SeedCount(None, NO_VARIANCE)
    if difference == 0:
        return SeedCount(None, "the observed difference is zero")
    effect = abs(difference) / sd
    if power_of_t_test(effect, MAX_SEEDS, alpha) < POWER:
        return SeedCount(None, f"more than {MAX_SEEDS:,}: adding seeds will not decide this")
    enough = bisect.bisect_left(
        range(2, MAX_SEEDS), POWER, key=lambda n: power_of_t_test(effect, n, alpha)
    )
    return SeedCount(2 + enough, None)


def power_of_t_test(effect: float, n: int, alpha: float = ALPHA) -> float:
    """Power of the two-sided two-sample t test, n per arm, ``effect`` in standard deviations.

    Cohen 1988, chapter 2: noncentral t with df = 2(n-1) and noncentrality effect * sqrt(n/2).
    """
    df, shift = 2 * (n - 1), effect * math.sqrt(n / 2)
    critical = float(stats.t.ppf(1 - alpha / 2, df))
    # scipy's noncentral t is nan far out in a tail; there the probability is 0 or 1
    if shift > critical + 30:
        return 1.0
    other_side = float(stats.nct.cdf(-critical, df, shift)) if shift < 5 else 0.0
    return float(stats.nct.sf(critical, df, shift)) + other_side


def _one_run(first: Sequence[float], second: Sequence[float]) -> str:
    return ONE_RUN if len(first) == len(second) else f"{ONE_RUN} in one of the two"


def _sd(values: Sequence[float]) -> float:
    """Sample standard deviation; exactly zero where only the rounding of equal values is left."""
    sd = float(np.std(values, ddof=1))
    return sd if sd > _ROUNDING * max(abs(value) for value in values) else 0.0


def _welch(arm: Sequence[float], reference: Sequence[float]) -> _Welch:
    difference = float(np.mean(arm) - np.mean(reference))
    parts = [(_sd(values) ** 2 / len(values), len(values)) for values in (arm, reference)]
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return _Welch(difference, 0.0, math.inf)
    df = total**2 / sum(variance**2 / (n - 1) for variance, n in parts)
    return _Welch(difference, math.sqrt(total), df)
