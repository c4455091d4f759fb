"""Time to a target over runs of which some never reach it, and some are lost.

A run that diverged, or ended without its target, never reaches it: its time is infinite. A run that
was lost (failed, missing) would perhaps have reached it: it is censored at the last time known.
Mean or median of those that did reach it would reward losing the slow ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from analysis import fmt
from analysis.stats.intervals import NO_RUNS, Floats, estimate, median_ends, share
from analysis.table import Estimate

_ROUNDING = 1e-9


def _survival(times: Sequence[float], lost: Sequence[bool]) -> tuple[Floats, Floats]:
    """Times at which a run reached its target, and the share of runs that had not just after each:
    the product-limit estimate (Kaplan and Meier 1958)."""
    when, censored = np.asarray(times, float), np.asarray(lost, bool)
    never = np.isinf(when)
    # a run that never gets there is under observation longer than all others
    when = np.where(never, when[~never].max(initial=0) + 1, when)
    censored = censored | never
    data = stats.CensoredData(uncensored=when[~censored], right=when[censored])
    found = stats.ecdf(data).sf
    reached = np.isin(found.quantiles, when[~censored])
    return found.quantiles[reached], found.probabilities[reached]


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
    reached, left = _survival(times, lost)
    # exactly half: any time until the next event is a median, the middle as for plain numbers
    at, after = (
        float(next(iter(reached[left <= at_most]), math.inf))
        for at_most in (0.5 + _ROUNDING, 0.5 - _ROUNDING)
    )
    never = sum(math.isinf(time) and not out for time, out in zip(times, lost, strict=True))
    if math.isinf(at) and not never:
        bound = max(time for time, out in zip(times, lost, strict=True) if out)
        return Estimate(bound, bound, None, n - gone, note or None)
    value = at if math.isinf(after) and not never else (at + after) / 2
    if math.isinf(value):
        note = fmt.joined(
            [f"not reached by {never} of {n} runs: the median is infinite", note], "; "
        )
    low, high = (np.nan, np.nan) if gone else median_ends(times)
    return estimate(value, low, high, n - gone, note)


def share_reached(times: Sequence[float], lost: Sequence[bool]) -> Estimate:
    """Share of the runs that are not lost which reached their target, with its exact interval."""
    kept = [time for time, gone in zip(times, lost, strict=True) if not gone]
    found = share(sum(math.isfinite(time) for time in kept), len(kept))
    gone = len(times) - len(kept)
    return found._replace(note=f"{gone} of {len(times)} runs lost") if gone else found
