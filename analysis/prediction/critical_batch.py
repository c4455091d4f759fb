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

from analysis.prediction import Refusal
from analysis.stats.intervals import LEVEL
from analysis.table import Estimate

Floats = npt.NDArray[np.float64]
#: Distinct batch sizes that reached the target: with two, the law's two parameters fit anything.
LEAST_BATCHES = 3
#: B_crit is searched within the batches that ran times or over this. A B_crit at an end of it
#: cannot be told from none at all: the steps are then 1 / B, or constant, to a thousandth.
BEYOND = 1000.0
_ROOM = math.log(BEYOND)
_EXACT = 1e-8  # sd of log steps below which the points are exact: they then give no interval
_GRID, _STEPS = 401, 61
_Ends = tuple[float | None, float | None]


class CriticalBatch(NamedTuple):
    """steps_min, batch: S_min and B_crit with 95 % intervals; without ``high`` a lower bound, and
    without ``low`` an upper one. sd: of log steps between runs."""

    steps_min: Estimate
    batch: Estimate
    sd: float


def law(batch: Floats, steps_min: float, critical: float) -> Floats:
    """Steps at these batches."""
    return steps_min * (1 + critical / batch)


def fit_critical_batch(
    batches: Sequence[float], steps: Sequence[float], reached: Sequence[bool]
) -> CriticalBatch | Refusal:
    """Maximum likelihood with log-normal steps; one entry per run.

    A run that never reached the target enters as more than its budget, as it is: a tobit term.
    Intervals are those of the profile likelihood, with the limit that makes them exact for a
    linear model: the n of a sweep is too small for that of chi-square.

    Args:
        batches, steps: > 0. steps: to the target; where ``reached`` is False, those that the run
            had.
    """
    sizes, logs, ok = np.asarray(batches, float), np.log(steps), np.asarray(reached, bool)
    n, distinct = int(ok.sum()), len(set(sizes[ok]))
    if distinct < LEAST_BATCHES:
        return Refusal(
            f"{distinct} batch sizes reached the target, and the law needs {LEAST_BATCHES}"
        )
    # of thousands of runs many end with the same budget
    cut, times = np.unique([np.log(sizes[~ok]), logs[~ok]], axis=1, return_counts=True)
    data = _Likelihood(np.log(sizes[ok]), logs[ok], cut, times.astype(float))
    best, level, sd = data.best()
    (least,) = data.steps_min(best)
    critical: _Ends = (None, None)
    smallest: _Ends = (None, None)
    if sd > _EXACT:
        fallen = level - n * math.log1p(stats.t.ppf((1 + LEVEL) / 2, n - 2) ** 2 / (n - 2)) / 2
        ends = (float(data.range[0]), float(data.range[1]))
        critical = _where_above(lambda c: data.profile(c)[0] - fallen, (best, best), ends)
        if critical == (None, None):
            return Refusal("these batches do not tell where the critical one is")
        low, high = (e if end is None else end for e, end in zip(ends, critical, strict=True))
        count = int(np.clip((high - low) / 0.01, _STEPS, _GRID))
        within = np.linspace(low, high, count)
        likely = data.steps_min(*within)  # between them a narrow likelihood dips, for want of c
        smallest = _where_above(
            lambda a: data.profile_of_steps_min(a, within) - fallen,
            (likely.min(), likely.max()), (least - 2 * _ROOM, float(logs.max())),
        )  # fmt: skip
    return CriticalBatch(
        _estimate(least, smallest, n, None),
        _estimate(best, critical, n, _why_open(critical) if sd > _EXACT else "no variance"),
        sd,
    )


class _Likelihood:
    """Of log steps, normal around the law; c is log B_crit, a is log S_min, t is 1 / sd.

    In the place of a stands m, the log of the steps at the middle batch: it hardly depends on c, so
    grids over c are enough, also where B_crit runs away.
    """

    def __init__(self, batch: Floats, steps: Floats, cut: Floats, times: Floats) -> None:
        self.batch, self.steps = batch, steps
        self.batch_cut, self.steps_cut = cut  # of runs that never reached it
        self.times = times  # how many of them have these two
        self.middle = float(batch.mean())
        self.range = np.array([batch.min() - _ROOM, batch.max() + _ROOM])

    def steps_min(self, *c: float) -> Floats:
        """a of the best m at each c."""
        return self.profile(np.array(c))[1] - np.log1p(np.exp(np.array(c) - self.middle))

    def best(self) -> tuple[float, float, float]:
        """c, log-likelihood and sd of the maximum."""
        low, high = self.range
        grid, step = np.linspace(low, high, _GRID), (high - low) / (_GRID - 1)
        top = float(grid[self.profile(grid)[0].argmax()])
        # from the grid's best on: the tolerance of the search grows with its numbers
        found = optimize.minimize_scalar(
            lambda more: -self.profile(np.array([top + more]))[0][0], method="bounded",
            bounds=(max(-step, low - top), min(step, high - top)), options={"xatol": 1e-10},
        )  # fmt: skip
        level, _, t = self.profile(np.array([top + found.x]))
        return top + float(found.x), float(level[0]), float(1 / t[0])

    def profile(self, c: Floats) -> tuple[Floats, Floats, Floats]:
        """Largest log-likelihood at each c, with its m and t."""
        left = self.steps - self._shape(c, self.batch)
        m = left.mean(axis=1)
        squares, cut = left.var(axis=1) * len(self.steps), self._cut(c)
        level, t = self._over_sd(squares, cut - m[:, None])
        if not len(self.steps_cut):
            return level, m, t
        n, mean = len(self.steps), m.copy()
        # by turns, each concave (Olsen 1978)
        for _ in range(60):
            z = t[:, None] * (cut - m[:, None])
            hazard = _hazard(z)
            slope = t**2 * n * (mean - m) + t * (hazard @ self.times)
            bend = n + (hazard * (hazard - z)) @ self.times
            before, m = m, m + slope / (t**2 * bend)
            level, t = self._over_sd(squares + n * (mean - m) ** 2, cut - m[:, None], t)
            if np.allclose(before, m, rtol=0, atol=1e-9):
                break
        return level, m, t

    def profile_of_steps_min(self, a: Floats, c: Floats) -> Floats:
        """Largest log-likelihood at each a, over the given c."""
        left = self.steps - self._shape(c, self.batch)
        mean, squares = left.mean(axis=1), left.var(axis=1) * len(self.steps)
        m = a[:, None] + np.log1p(np.exp(c - self.middle))
        cut = self._cut(c) - m[:, :, None]
        level, _ = self._over_sd(squares + len(self.steps) * (mean - m) ** 2, cut)
        return level.max(axis=1)

    def _shape(self, c: Floats, batch: Floats) -> Floats:
        """Log of steps over those at the middle batch; (c, batch)."""
        at = np.log1p(np.exp(c - self.middle))
        return np.log1p(np.exp(c[:, None] - batch)) - at[:, None]

    def _cut(self, c: Floats) -> Floats:
        return self.steps_cut - self._shape(c, self.batch_cut)

    def _over_sd(
        self, squares: Floats, cut: Floats, start: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """The maximum over t. squares: of the runs that reached the target; cut: how far the
        budget of each other run is above the law."""
        n = len(self.steps)
        squares = np.maximum(squares, n * _EXACT**2 / 4)
        t = np.sqrt(n / squares) if start is None else start
        for _ in range((12 if start is None else 2) if cut.shape[-1] else 0):
            z = t[..., None] * cut
            hazard = _hazard(z)
            slope = n / t - t * squares - (cut * hazard) @ self.times
            bend = n / t**2 + squares + (cut**2 * hazard * (hazard - z)) @ self.times
            before, t = t, np.clip(t + slope / bend, t / 3, t * 3)
            if np.allclose(before, t, rtol=1e-6, atol=0):
                break
        beyond = special.log_ndtr(-t[..., None] * cut) @ self.times
        return n * np.log(t) - t**2 * squares / 2 + beyond, t


def _hazard(z: Floats) -> Floats:
    """Normal density over upper tail."""
    found: Floats = np.exp(-(z**2) / 2 - special.log_ndtr(-z)) / math.sqrt(2 * math.pi)
    return found


def _where_above(
    height: Callable[[Floats], Floats], likely: tuple[float, float], ends: tuple[float, float]
) -> _Ends:
    """Where ``height`` falls below 0 on either side of ``likely``; None: not before the end."""

    def at(place: float) -> float:
        return float(height(np.array([place]))[0])

    low, high = (
        None if at(end) >= 0
        else float(optimize.brentq(at, start, end, xtol=1e-7)) if at(start) > 0 else start
        for start, end in zip(likely, ends, strict=True)
    )  # fmt: skip
    return low, high


def _estimate(log: float, interval: _Ends, n: int, note: str | None) -> Estimate:
    low, high = (None if end is None else math.exp(end) for end in interval)
    return Estimate(math.exp(log), low, high, n, note)


def _why_open(interval: _Ends) -> str | None:
    low, high = interval
    if high is None:
        return "steps still fall as 1 / batch at the largest one: a lower bound"
    return "steps hardly fall with the batch: an upper bound" if low is None else None
