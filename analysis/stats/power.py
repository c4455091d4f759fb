"""How many further runs would show a difference of a declared size.

The size is declared, never the observed difference: power at the observed difference only repeats
its p value (Hoenig and Heisey 2001).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from analysis.stats.intervals import Floats, Moments
from analysis.stats.levels import ALPHA, CONFIDENCE, DETECTED, POWER

#: Above this many runs per arm the honest answer is "not by adding runs".
MAX_RUNS = 10_000
#: Noncentral t of scipy is wrong by up to 0.2 at the degrees of freedom of two runs per arm.
FEWEST = 3
TOO_MANY = f"more than {MAX_RUNS:,}: adding runs will not show a difference this small"
NO_SPREAD = "unknown: needs two runs of each arm that differ"
ENOUGH = "these runs would most likely have shown {:g}: the difference is probably smaller"


class FurtherRuns(NamedTuple):
    """``runs`` per arm beyond those there; nan where unknown, inf above MAX_RUNS."""

    runs: Floats
    notes: list[str | None]


def sd_bound(sd: ArrayLike, n: ArrayLike, confidence: float = CONFIDENCE) -> Floats:
    """Upper confidence bound of a standard deviation of n normal runs (chi-square)."""
    df = np.asarray(n, float) - 1
    return np.asarray(sd * np.sqrt(df / special.chdtri(df, confidence)), float)


def welch_power(
    difference: ArrayLike, sd: ArrayLike, sd_reference: ArrayLike, n: ArrayLike,
    alpha: float = ALPHA,
) -> Floats:  # fmt: skip
    """Power of the two-sided Welch test, n runs per arm, of a true difference.

    Noncentral t with Welch's degrees of freedom at the true standard deviations.
    """
    a, b, runs = np.square(sd), np.square(sd_reference), np.asarray(n, float)
    df = (a + b) ** 2 / (a**2 + b**2) * (runs - 1)
    shift = np.abs(difference) / np.sqrt((a + b) / runs)
    critical = special.stdtrit(df, 1 - alpha / 2)
    both = stats.nct.sf(critical, df, shift) + stats.nct.sf(critical, df, -shift)
    # the noncentral t is nan at some points far out in a tail, where the power is 0 or 1
    return np.where(np.isnan(both), shift > critical, np.minimum(both, 1))


def further_runs(
    arm: Moments, reference: Moments, margin: float = DETECTED, alpha: float = ALPHA
) -> FurtherRuns:
    """Runs per arm to add until Welch's test has power 0.8 for a true difference of ``margin``.

    Each standard deviation is taken at its upper confidence bound, since that of few runs is
    known badly: the number then is large enough in at least 80 % of the cases. Where arms have
    unequal numbers of runs, it is that of the smaller one.

    Args:
        margin: a true difference, > 0.
        alpha: of the test; ALPHA / size of a family.
    """
    # identical runs do not show a spread of 0: theirs is unknown
    known = (arm.sd > 0) & (reference.sd > 0)
    runs = np.full(len(arm.n), np.nan)
    if known.any():
        bound, other = (sd_bound(found.sd[known], found.n[known]) for found in (arm, reference))
        there = np.minimum(arm.n, reference.n)[known]
        needed = _enough(margin, bound, other, alpha)
        runs[known] = np.maximum(needed - there, 0)
    return FurtherRuns(runs, [_note(value, margin) for value in runs])


def _enough(margin: float, sd: Floats, sd_reference: Floats, alpha: float) -> Floats:
    """Smallest n from FEWEST on with POWER, by halving; inf above MAX_RUNS."""
    few, many = np.full(len(sd), FEWEST - 1), np.full(len(sd), MAX_RUNS + 1)
    while len(left := np.flatnonzero(many - few > 1)):
        at = (few[left] + many[left]) // 2
        enough = welch_power(margin, sd[left], sd_reference[left], at, alpha) >= POWER
        many[left] = np.where(enough, at, many[left])
        few[left] = np.where(enough, few[left], at)
    return np.where(many > MAX_RUNS, np.inf, many.astype(float))


def _note(runs: float, margin: float) -> str | None:
    if np.isnan(runs):
        return NO_SPREAD
    if np.isinf(runs):
        return TOO_MANY
    return ENOUGH.format(margin) if runs == 0 else None
