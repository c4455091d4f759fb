"""alpha and beta from measured times, with intervals, and how well they foretell other times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from analysis.model.costs import Link, Parts

Floats = npt.NDArray[np.float64]
#: A formula: ranks, bytes -> its parts.
Cost = Callable[[int, float], Parts]

RESAMPLES = 300
#: A fit that misses a size by more than this is not extrapolated.
WORST = 0.30
_LOW, _HIGH = 2.5, 97.5


class Timed(NamedTuple):
    """Samples of one size, in seconds."""

    ranks: int
    bytes: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))


class Fit(NamedTuple):
    """link: the estimate. resampled: (alpha, beta) of the bootstrap, one row each.
    worst: largest relative error at a size that was fitted."""

    cost: Cost
    link: Link
    resampled: Floats
    worst: float

    @property
    def alpha_interval(self) -> tuple[float, float]:
        return _interval(self.resampled[:, 0])

    @property
    def beta_interval(self) -> tuple[float, float]:
        return _interval(self.resampled[:, 1])

    def seconds(self, ranks: int, size: float) -> float:
        return self.cost(ranks, size).seconds(self.link)

    def interval(self, ranks: int, size: float) -> tuple[float, float]:
        """Of the fitted line, by the bootstrap; 95 %. Says nothing of a wrong formula."""
        parts = self.cost(ranks, size)
        return _interval(self.resampled @ np.array([parts.messages, parts.bytes]))


class Foretold(NamedTuple):
    """One time that was not fitted. error: measured over predicted, minus one."""

    ranks: int
    bytes: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        return self.measured / self.predicted - 1


def fit(timed: Sequence[Timed], cost: Cost, seed: int = 0) -> Fit:
    """Weighted least squares of the medians, weight 1 / T^2, alpha and beta not below 0.

    With equal weights the largest sizes alone would decide, alpha included. The bootstrap draws the
    samples of each size anew.

    Raises:
        ValueError: fewer than two sizes, or none with a time above 0.
    """
    link, errors = line(timed, cost)
    parts = _parts(timed, cost)
    random = np.random.default_rng(seed)
    drawn = np.stack([resampled_medians(t.seconds, RESAMPLES, random) for t in timed], axis=1)
    resampled = np.array([_solve(parts, times) for times in drawn])
    return Fit(cost, link, resampled, float(np.abs(errors).max()))


def line(timed: Sequence[Timed], cost: Cost) -> tuple[Link, Floats]:
    """The estimate of :func:`fit` alone, and its relative error at each time.

    Raises:
        ValueError: as ``fit``.
    """
    if len({(t.ranks, t.bytes) for t in timed}) < 2:
        raise ValueError(f"found {len(timed)} sizes, expected two or more: a line needs two points")
    if any(min(t.seconds) <= 0 for t in timed):
        raise ValueError("found a time of 0 s or less, expected more")
    parts, medians = _parts(timed, cost), np.array([t.median for t in timed])
    alpha, beta = _solve(parts, medians)
    return Link(alpha, beta), parts @ [alpha, beta] / medians - 1


def _parts(timed: Sequence[Timed], cost: Cost) -> Floats:
    return np.array([cost(t.ranks, t.bytes)[:2] for t in timed])


def resampled_medians(samples: Sequence[float], count: int, random: np.random.Generator) -> Floats:
    """Bootstrap: medians of ``count`` draws of as many samples."""
    found: Floats = np.median(random.choice(samples, (count, len(samples))), axis=1)
    return found


def _solve(parts: Floats, times: Floats) -> tuple[float, float]:
    scaled = parts / times[:, None]
    size = np.maximum(np.linalg.norm(scaled, axis=0), np.finfo(float).tiny)  # columns alike
    solution, _ = nnls(scaled / size, np.ones(len(times)))
    alpha, beta = solution / size
    return float(alpha), float(beta)


def _interval(values: Floats) -> tuple[float, float]:
    low, high = np.percentile(values, (_LOW, _HIGH))
    return float(low), float(high)
