"""Differences between sets of runs: Welch's test and interval, families of them, equivalence.

Runs are unpaired, with unequal variances. Where simulation shows Welch's degrees of freedom to be
too many, those of the smaller set alone are used, which never are (Mickey and Brown 1966, Annals of
Mathematical Statistics 37, 639): where sets of fewer than ten runs differ much in their number, and
in a family whose reference scatters much less than its arms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from analysis.stats.intervals import NO_RUNS, ONE_RUN, Floats, Moments, t_quantile
from analysis.stats.levels import ALPHA, LEVEL

NO_VARIANCE = "no spread within either set of runs{}, so no interval"
#: Up to this ratio numbers of runs count as equal; from ENOUGH runs on they need not be.
_NEARLY_EQUAL, _ENOUGH = 1.25, 10
#: Where the median sd of a family's arms is more times their reference's, Welch's df are too many.
_CALM_REFERENCE = 3.0


class Welch(NamedTuple):
    """Differences arm - reference, one element each; nan where one cannot be tested."""

    value: Floats
    low: Floats
    high: Floats
    p: Floats  # two-sided
    error: Floats  # standard error
    df: Floats


def welch(
    arm: Moments, reference: Moments, level: float = LEVEL, *, fewest_df: ArrayLike = False
) -> Welch:
    """mean(arm) - mean(reference), unequal variances, Satterthwaite's degrees of freedom.

    Args:
        level: of the intervals.
        fewest_df: where true, the degrees of freedom of the smaller set.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = [(found.sd**2 / found.n, found.n) for found in (arm, reference)]
        total = parts[0][0] + parts[1][0]
        df = total**2 / sum(variance**2 / (n - 1) for variance, n in parts)
        few, many = np.minimum(arm.n, reference.n), np.maximum(arm.n, reference.n)
        unequal = (few < _ENOUGH) & (many > _NEARLY_EQUAL * few)
        df = np.where(unequal | np.asarray(fewest_df), few - 1, df)
        error = np.where(total > 0, np.sqrt(total), np.nan)
        value = arm.mean - reference.mean
        half = t_quantile(df, level) * error
        p = 2 * special.stdtr(df, -np.abs(value) / error)
    return Welch(value, value - half, value + half, p, error, df)


def why_untested(
    arm: Moments, reference: Moments, write: Callable[[Any], str] | None = None
) -> list[str | None]:
    """Why differences have no interval; None where one has. ``write``: of means without spread."""
    few, many = np.fmin(arm.n, reference.n), np.fmax(arm.n, reference.n)
    flat = (arm.sd == 0) & (reference.sd == 0)
    cases = [~(few > 0), many == 1, few == 1, flat]
    notes = [NO_RUNS, ONE_RUN, f"{ONE_RUN} in one of the two", NO_VARIANCE.format("")]
    found: list[str | None] = [note or None for note in np.select(cases, notes, "").tolist()]
    for place in np.flatnonzero(flat & (few > 1)) if write else ():
        means = [write(of.mean[place]) for of in (arm, reference)] if write else []
        found[place] = NO_VARIANCE.format(f" ({' and '.join(means)})")
    return found


def differences(arm: Moments, reference: Moments) -> pd.DataFrame:
    """Of pairs of sets of runs, a row per pair: the parts of an Estimate, whose note says why there
    is no interval or no value, and the two-sided p of no difference."""
    found = welch(arm, reference)
    parts = {name: getattr(found, name) for name in ("value", "low", "high", "p")}
    n, note = (arm.n + reference.n).astype(int), why_untested(arm, reference)
    return pd.DataFrame({**parts, "n": n, "note": note})


def ratios(over: Moments, under: Moments) -> pd.DataFrame:
    """Ratios of geometric means with the interval of the logarithm, as :func:`differences`, so that
    the uncertainty of a baseline is in the interval. ``over``, ``under``: moments of logarithms."""
    found = differences(over, under)
    return found.assign(**{end: np.exp(found[end]) for end in ("value", "low", "high")})


def family(arm: Moments, reference: Moments, size: int) -> Welch:
    """Each arm against its reference, of ``size`` planned comparisons; the last axis is the family.

    Intervals are Bonferroni's, at level 1 - ALPHA / size: all of them hold together. p is not
    corrected: it is below ALPHA / size exactly where the interval excludes 0. Moments that are nan
    stand for what could not be compared.
    """
    level = 1 - ALPHA / max(size, 1)
    return welch(arm, reference, level, fewest_df=_calm(arm.sd, reference.sd, size))


def _calm(sd: Floats, sd_reference: Floats, size: int) -> NDArray[np.bool_]:
    """Whether more than half of a family's arms scatter much more than their reference."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.where((sd > 0) & (sd_reference > 0), sd / sd_reference, np.nan)
        above = (ratios > _CALM_REFERENCE).sum(-1, keepdims=True)
    found: NDArray[np.bool_] = 2 * above > (~np.isnan(ratios)).sum(-1, keepdims=True)
    return found & (size > 1)


def equivalence(arm: Moments, reference: Moments, margin: float) -> Floats:
    """p of the claim that the means differ by less than ``margin`` (> 0); nan where untested.

    Two one-sided Welch tests, the larger p (Schuirmann 1987): below ALPHA exactly where the
    interval of level 1 - 2 ALPHA of the difference lies within ± margin.
    """
    found = welch(arm, reference)
    result: Any = special.stdtr(found.df, -(margin - np.abs(found.value)) / found.error)
    return np.asarray(result, float)
