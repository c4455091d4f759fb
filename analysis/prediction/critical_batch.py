"""Steps to a target against batch size: the law and its fit.

McCandlish et al. 2018 (1812.06162, section 2.3), as measured by Shallue et al. 2018 (1811.03600):
S(B) = S_min (1 + B_crit / B) optimizer steps and E = S B examples, so that
(S / S_min - 1) (E / E_min - 1) = 1 with E_min = S_min B_crit. At B_crit both are twice their least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from analysis.stats.levels import LEVEL
from analysis.table import Estimate

Floats = npt.NDArray[np.float64]
#: Distinct batch sizes that reached the target: with two, the law's two parameters fit anything.
LEAST_BATCHES = 3
#: B_crit is searched within the batches that ran times or over this. A B_crit at an end of it
#: cannot be told from none at all: the steps are then 1 / B, or constant, to a thousandth.
BEYOND = 1000.0
_ROOM = math.log(BEYOND)
_EXACT = 1e-8  # sd of log steps below which the points are exact: they then give no interval
_GRID = 61
_Ends = tuple[float | None, float | None]


class CriticalBatch(NamedTuple):
    """S_min and B_crit with 95 % intervals; without ``high`` a lower bound, and without ``low`` an
    upper one."""

    steps_min: Estimate
    batch: Estimate


def law(batch: Floats, steps_min: float, critical: float) -> Floats:
    """Steps at these batches."""
    return steps_min * (1 + critical / batch)


def without_fit(n: int, why: str) -> CriticalBatch:
    """``n``: runs that reached the target."""
    none = Estimate(None, n=n, note=why)
    return CriticalBatch(none, none)


def fit_critical_batch(
    batches: Sequence[float], steps: Sequence[float], reached: Sequence[bool]
) -> CriticalBatch:
    """Maximum likelihood with log-normal steps; one entry per run. Without a fit the notes say why.

    A run that never reached the target enters as more than its budget, as it is: a tobit term.
    Intervals are those of the profile likelihood, with the limit that makes them exact for a
    linear model: the n of a sweep is too small for that of chi-square.

    Args:
        batches, steps: > 0. steps: to the target; where ``reached`` is False, those that the run
            had.
    """
    batch, logs, ok = np.log(batches), np.log(steps), np.asarray(reached, bool)
    n, distinct = int(ok.sum()), len(set(batch[ok]))
    if distinct < LEAST_BATCHES:
        why = f"{distinct} batch sizes reached the target, and the law needs {LEAST_BATCHES}"
        return without_fit(n, why)
    # of thousands of runs many end with the same budget
    cut, times = np.unique([batch[~ok], logs[~ok]], axis=1, return_counts=True)
    middle = float(batch[ok].mean())
    ends = (float(batch[ok].min()) - _ROOM, float(batch[ok].max()) + _ROOM)

    def away(c: float, at: Floats, steps: Floats) -> Floats:
        """Log of steps over those that the law has at the middle batch if it has 1 there."""
        return steps - np.log1p(np.exp(c - at)) + np.log1p(np.exp(c - middle))

    def loss(m: float, s: float, c: float) -> float:
        """Minus the log-likelihood. m: log of the steps at the middle batch, which hardly depends
        on c, the log of B_crit. s: log of the standard deviation."""
        z = (away(c, batch[ok], logs[ok]) - m) * math.exp(-s)
        beyond = special.log_ndtr((m - away(c, *cut)) * math.exp(-s)) @ times
        return float(n * s + z @ z / 2 - beyond)

    def held(c: float, m: float | None = None) -> tuple[float, float, float]:
        """At this c, and m where it is given: the least loss, with its m and s."""
        left = away(c, batch[ok], logs[ok])
        mean = left.mean() if m is None else m
        s = math.log(max(math.sqrt(np.square(left - mean).mean()), _EXACT / 2))
        if not len(times):
            return loss(mean, s, c), mean, s
        if m is None:
            found = optimize.minimize(lambda x: loss(float(x[0]), float(x[1]), c), (mean, s))
            return float(found.fun), float(found.x[0]), float(found.x[1])
        found = optimize.minimize_scalar(lambda s: loss(m, s, c), (s, s + 0.5))
        return float(found.fun), m, float(found.x)

    grid = np.linspace(*ends, _GRID)
    top, step = min(grid, key=lambda c: held(c)[0]), grid[1] - grid[0]
    best = top + optimize.minimize_scalar(
        lambda more: held(top + more)[0], method="bounded", options={"xatol": 1e-10},
        bounds=(max(-step, ends[0] - top), min(step, ends[1] - top)),
    ).x  # fmt: skip
    least, m, s = held(best)
    smallest = m - math.log1p(math.exp(best - middle))
    if math.exp(s) <= _EXACT:
        return CriticalBatch(
            Estimate(math.exp(smallest), n=n), Estimate(math.exp(best), n=n, note="no variance")
        )
    limit = least + n * math.log1p(stats.t.ppf((1 + LEVEL) / 2, n - 2) ** 2 / (n - 2)) / 2
    low, high = of_batch = _where_above(lambda c: limit - held(c)[0], best, ends)
    if of_batch == (None, None):
        return without_fit(n, "these batches do not tell where the critical one is")
    within = [e if end is None else end for e, end in zip(ends, of_batch, strict=True)]

    def over(a: float) -> float:
        """At this log of S_min, over all c."""
        found = optimize.minimize_scalar(
            lambda c: held(c, a + math.log1p(math.exp(c - middle)))[0], bounds=within,
            method="bounded", options={"xatol": 1e-9},
        )  # fmt: skip
        return limit - float(found.fun)

    of_steps = _where_above(over, smallest, (smallest - 2 * _ROOM, float(logs.max())))
    note = "steps still fall as 1 / batch at the largest one: a lower bound" if high is None else (
        "steps hardly fall with the batch: an upper bound" if low is None else None
    )  # fmt: skip
    return CriticalBatch(_estimate(smallest, of_steps, n), _estimate(best, of_batch, n, note))


def _where_above(height: Callable[[float], float], best: float, ends: Sequence[float]) -> _Ends:
    """Where ``height`` falls below 0 on either side of ``best``; None: not before the end."""
    low, high = (
        None if height(end) >= 0 else float(optimize.brentq(height, best, end, xtol=1e-7))
        for end in ends
    )
    return low, high


def _estimate(log: float, interval: _Ends, n: int, note: str | None = None) -> Estimate:
    low, high = (None if end is None else math.exp(end) for end in interval)
    return Estimate(math.exp(log), low, high, n, note)
