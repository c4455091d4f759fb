"""Time to a target over runs of which some never reach it, and some are lost.

A run that diverged, or ended without its target, never reaches it: its time is infinite. A run that
was lost (failed, missing) would perhaps have reached it: it is censored at the last time known.
Mean or median of those that did reach it would reward losing the slow ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import stats

from analysis.stats.intervals import LEVEL, NO_RUNS, Floats, share
from analysis.table import Estimate, joined

_ROUNDING = 1e-9


class Curve(NamedTuple):
    """Share of runs that have not reached the target just after each time."""

    times: Floats
    share: Floats


def kaplan_meier(times: Sequence[float], lost: Sequence[bool]) -> Curve:
    """Product-limit estimate (Kaplan and Meier 1958) at the times at which a run reached its
    target; a lost run counts until its time, also at a tie."""
    when, censored = np.asarray(times, float), np.asarray(lost, bool)
    reached = np.unique(when[~censored & np.isfinite(when)])
    left = [1 - ((when == time) & ~censored).sum() / (when >= time).sum() for time in reached]
    return Curve(reached, np.cumprod(left))


def median_time(times: Sequence[float], lost: Sequence[bool]) -> Estimate:
    """Median time to the target over all runs; infinite where half of them never reach it.

    Without lost runs it is the plain median; its interval, from 6 runs on, is that of order
    statistics, exact for every distribution. With lost runs it is Kaplan and Meier's, without
    interval; where they leave it open, the last time known is a bound (``low`` alone).

    Args:
        times: one per run; inf where it never reached its target, where ``lost`` the last time
            known of it, 0 for none.
    """
    n, gone = len(times), int(np.sum(lost))
    if n == gone:
        return Estimate(None, n=0, note=NO_RUNS if not n else f"all {n} runs are lost")
    note = f"{gone} of {n} runs lost: Kaplan-Meier" if gone else ""
    curve = kaplan_meier(times, lost)
    # exactly half: any time until the next event is a median, the middle as for plain numbers
    at, after = (_first(curve, at_most) for at_most in (0.5 + _ROUNDING, 0.5 - _ROUNDING))
    never = sum(math.isinf(time) and not out for time, out in zip(times, lost, strict=True))
    if math.isinf(at) and not never:
        bound = max(time for time, out in zip(times, lost, strict=True) if out)
        return Estimate(bound, bound, None, n - gone, note or None)
    value = at if math.isinf(after) and not never else (at + after) / 2
    if math.isinf(value):
        note = joined([f"not reached by {never} of {n} runs: the median is infinite", note], "; ")
    low, high = (None, None) if gone else _order_statistics(sorted(times))
    return Estimate(value, low, high, n - gone, note or None)


def share_reached(times: Sequence[float], lost: Sequence[bool]) -> Estimate:
    """Share of the runs that are not lost which reached their target, with its exact interval."""
    kept = [time for time, gone in zip(times, lost, strict=True) if not gone]
    found = share(sum(math.isfinite(time) for time in kept), len(kept))
    gone = len(times) - len(kept)
    return found._replace(note=f"{gone} of {len(times)} runs lost") if gone else found


def _first(curve: Curve, at_most: float) -> float:
    """First time at which at most this share has not reached the target; inf if never."""
    there = curve.times[curve.share <= at_most]
    return float(there[0]) if len(there) else math.inf


def _order_statistics(times: Sequence[float]) -> tuple[float | None, float | None]:
    """Ends of the median's interval: the innermost pair of order statistics that covers LEVEL."""
    n, k = len(times), _innermost(len(times))
    return (times[k - 1], times[n - k]) if k > 0 else (None, None)


@lru_cache(maxsize=256)
def _innermost(n: int) -> int:
    """The k for which P(fewer than k of n runs lie below the median) is at most (1 - LEVEL) / 2."""
    return int(stats.binom.ppf((1 - LEVEL) / 2, n, 0.5))
