"""alpha and beta of a ring from measured times, with intervals.

One line seldom holds for all sizes: protocols change from eager to rendezvous, and shapers and
buffers let a burst pass at once. Where two lines explain the times better than one, by more than
their further parameters would by chance (Schwarz 1978), small and large messages are split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from analysis.prediction.collectives import Link, ring

Floats = npt.NDArray[np.float64]

RESAMPLES = 300
#: A fit that misses a size by more than this is not extrapolated.
WORST = 0.30
_LOW, _HIGH = 2.5, 97.5
#: Sizes on either side of a break; two would be met exactly by any line.
LEAST = 4
#: alpha and beta; with a break two of each, and the break, which is searched for and therefore
#: counts as three (Hall, Osborn and Sakkas 2013).
_ONE, _TWO = 2, 7
#: Relative errors below this are no better explained by anything.
_EXACT = 1e-6


class Timed(NamedTuple):
    """Samples of one size, in seconds."""

    ranks: int
    bytes: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))


class Fit(NamedTuple):
    """Intervals are those of the bootstrap. worst: largest relative error at a fitted size."""

    link: Link
    alpha_interval: tuple[float, float]
    beta_interval: tuple[float, float]
    worst: float


def fit(timed: Sequence[Timed]) -> Fit:
    """Weighted least squares of the medians of two sizes or more, weight 1 / T^2, alpha and beta
    not below 0.

    With equal weights the largest sizes alone would decide, alpha included. The bootstrap
    resamples the samples of each size.
    """
    link, errors = line(timed)
    parts, random = _parts(timed), np.random.default_rng(0)
    samples = [random.choice(t.seconds, (RESAMPLES, len(t.seconds))) for t in timed]
    drawn = np.stack([np.median(own, axis=1) for own in samples], axis=1)
    resampled = [_solve(parts, times) for times in drawn]
    alphas, betas = np.percentile(resampled, (_LOW, _HIGH), axis=0).T.tolist()
    return Fit(link, tuple(alphas), tuple(betas), float(np.abs(errors).max()))


def line(timed: Sequence[Timed]) -> tuple[Link, Floats]:
    """The estimate of :func:`fit` alone, and its relative error at each time."""
    parts, medians = _parts(timed), np.array([t.median for t in timed])
    link = _solve(parts, medians)
    return link, parts @ link / medians - 1


def _parts(timed: Sequence[Timed]) -> Floats:
    return np.array([ring(t.ranks, t.bytes) for t in timed])


def _solve(parts: Floats, times: Floats) -> Link:
    scaled = parts / times[:, None]
    size = np.maximum(np.linalg.norm(scaled, axis=0), np.finfo(float).tiny)  # columns alike
    solution, _ = nnls(scaled / size, np.ones(len(times)))
    return Link(*(solution / size).tolist())


class Segments(NamedTuple):
    """A line for messages (bytes over ranks) below ``split``, one from there on; 0: one for all.
    worst: largest relative error at a size that was fitted."""

    small: Link
    large: Fit
    split: float
    worst: float

    def seconds(self, ranks: int, size: float) -> float:
        link = self.small if size / ranks < self.split else self.large.link
        return ring(ranks, size).seconds(link)


def fit_segments(timed: Sequence[Timed]) -> Segments:
    """Of two sizes or more."""
    messages = np.array([t.bytes / t.ranks for t in timed])

    def sides(split: float) -> list[list[Timed]]:
        return [
            [timed[i] for i in np.flatnonzero(at)] for at in (messages < split, messages >= split)
        ]

    sizes = np.unique(messages)
    best, least = 0.0, _criterion(line(timed)[1], _ONE)
    for split in sizes[LEAST : len(sizes) - LEAST + 1].tolist():
        errors = np.concatenate([line(side)[1] for side in sides(split)])
        if (criterion := _criterion(errors, _TWO)) < least:
            best, least = split, criterion
    # only what was chosen, and is shown, is resampled for its intervals
    below, above = sides(best)
    small, errors = line(below or above)
    large = fit(above)
    return Segments(small, large, best, max(large.worst, float(np.abs(errors).max())))


def _criterion(errors: Floats, parameters: int) -> float:
    """Schwarz's, for Gaussian errors."""
    squares = max(float(np.mean(np.square(errors))), _EXACT**2)
    return len(errors) * math.log(squares) + parameters * math.log(len(errors))
