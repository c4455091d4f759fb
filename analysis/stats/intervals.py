"""Intervals of what runs give: means, shares, geometric means.

The interval of a mean is Student's t at every number of runs. A bootstrap of few runs covers less
than it says (docs/statistics.md has the simulation), so there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.stats import quantile_test

from analysis.stats.levels import LEVEL
from analysis.table import Estimate

NO_RUNS = "no run with this value"
ONE_RUN = "n=1"
IDENTICAL = "the runs are identical: no variance to make an interval of"
CUT = "cut at {}: the runs lie too close to it for a symmetric interval, which may cover less"
#: Relative spread below this is rounding, not variance between runs.
_ROUNDING = 1e-12

Floats = NDArray[np.float64]
#: real: any number. share: between 0 and 1, as an accuracy. positive: throughput, time or ratio,
#: whose mean is the geometric one and whose interval is that of the logarithm.
Kind = Literal["real", "share", "positive"]


class Moments(NamedTuple):
    """Count, mean and sample standard deviation of sets of runs, one element per set."""

    n: Floats
    mean: Floats
    sd: Floats  # nan below two runs; exactly 0 where only rounding is left

    def at(self, places: NDArray[np.integer[Any]]) -> Moments:
        """Of the sets at these places."""
        return Moments(*(part[places] for part in self))


def moments(values: Sequence[float] | Floats) -> Moments:
    """Of one set of runs, as arrays of one element."""
    return grouped_moments(np.asarray(values, float), np.zeros(len(values), int), 1)


def grouped_moments(values: ArrayLike, groups: NDArray[Any], count: int) -> Moments:
    """Of ``count`` sets at once.

    Args:
        values: one per run; nan where the run lacks it.
        groups: number of each run's set, from 0.
    """
    every = np.asarray(values, float)
    there = ~np.isnan(every)
    found, own = every[there], groups[there]
    n = np.bincount(own, minlength=count).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(own, found, count) / n
        variance = np.bincount(own, (found - mean[own]) ** 2, count) / (n - 1)
    sd = np.sqrt(np.where(n > 1, variance, np.nan))
    size = np.zeros(count)
    np.maximum.at(size, own, np.abs(found))
    return Moments(n, mean, np.where(sd <= _ROUNDING * size, 0.0, sd))


def t_quantile(df: ArrayLike, level: float = LEVEL) -> Floats:
    """Two-sided critical value of Student's t."""
    return np.asarray(special.stdtrit(df, (1 + level) / 2), float)


def estimate(value: float, low: float, high: float, n: int, note: str | None = None) -> Estimate:
    """An Estimate of floats that may be nan."""
    value_, low_, high_ = (None if np.isnan(end) else float(end) for end in (value, low, high))
    return Estimate(value_, low_, high_, int(n), note or None)


def means(values: ArrayLike, groups: NDArray[Any], count: int, kind: Kind = "real") -> pd.DataFrame:
    """Means of many sets of runs with their intervals, one row per set.

    Args:
        values: one per run; nan where the run lacks it.
        groups: number of each run's set, from 0.
        count: number of sets.

    Returns:
        the parts of an Estimate; see :func:`t_intervals`.

    Raises:
        ValueError: a value of kind positive is not.
    """
    every = np.asarray(values, float)
    if kind == "positive":
        if (every <= 0).any():
            raise ValueError(f"a logarithm needs positive values, found {np.nanmin(every):g}")
        every = np.log(every)
    return t_intervals(grouped_moments(every, groups, count), kind)


def t_intervals(found: Moments, kind: Kind = "real") -> pd.DataFrame:
    """``mean ± t(n - 1) sd / sqrt(n)`` per set; of kind positive the moments are of logarithms.

    Returns:
        value, low, high, n, note: the parts of an Estimate. Below two runs, and of identical runs,
        there is no interval, and the note says so.
    """
    n = np.nan_to_num(found.n)
    with np.errstate(invalid="ignore", divide="ignore"):
        half = t_quantile(n - 1) * found.sd / np.sqrt(n)
    half = np.where(found.sd > 0, half, np.nan)
    ends = np.stack([found.mean, found.mean - half, found.mean + half])
    note = np.select(
        [n == 0, n == 1, found.sd == 0], [NO_RUNS, ONE_RUN, IDENTICAL], default=""
    ).astype(object)
    if kind == "positive":
        ends = np.exp(ends)
    if kind == "share":
        under, over = ends[1] < 0, ends[2] > 1
        for where, cut in ((under, "0"), (over, "1"), (under & over, "0 and 1")):
            note = np.where(where, CUT.format(cut), note)
        ends = np.clip(ends, 0, 1)
    columns = dict(zip(("value", "low", "high"), ends, strict=True))
    table = pd.DataFrame({**columns, "n": n.astype(int), "note": note})
    return table.assign(note=table["note"].where(table["note"] != "", None))


def median_ends(values: ArrayLike) -> tuple[float, float]:
    """The exact interval of a median, by order statistics; nan below 6 values."""
    found = quantile_test(values, p=0.5).confidence_interval(LEVEL)
    return float(found.low), float(found.high)


def share(k: int, n: int) -> Estimate:
    """:func:`shares` of one set of runs."""
    return estimate(*shares([k], [n]).iloc[0])


def shares(k: ArrayLike, n: ArrayLike) -> pd.DataFrame:
    """``k`` of ``n`` runs, 0 <= k <= n, one row per set of runs: the parts of an Estimate, with the
    exact interval of Clopper and Pearson (1934)."""
    some, every = np.asarray(k, float), np.asarray(n, float)
    others, tail = every - some, (1 - LEVEL) / 2
    low = np.where(some == 0, 0.0, special.betaincinv(some, others + 1, tail))
    high = np.where(others == 0, 1.0, special.betaincinv(some + 1, others, 1 - tail))
    value = some / np.where(every > 0, every, np.nan)
    low, high = np.where(np.isnan(value), np.nan, [low, high])
    note = [None if count else NO_RUNS for count in every]
    return pd.DataFrame(
        {"value": value, "low": low, "high": high, "n": every.astype(int), "note": note}
    )
