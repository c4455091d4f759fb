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


class Fit(NamedTuple):
    """A line for messages (bytes over ranks) below ``split``, one from there on; 0: one for all.
    Intervals are those of ``large``, by bootstrap. worst: largest relative error at a fitted size.
    """

    small: Link
    large: Link
    split: float
    alpha_interval: tuple[float, float]
    beta_interval: tuple[float, float]
    worst: float

    def seconds(self, ranks: int, size: float) -> float:
        link = self.small if size / ranks < self.split else self.large
        return ring(ranks, size).seconds(link)


def fit(timed: Sequence[Timed]) -> Fit:
    """Of two sizes or more; the bootstrap resamples those of each from the split on."""
    messages = np.array([t.bytes / t.ranks for t in timed])

    def sides(split: float) -> list[list[Timed]]:
        return [
            [timed[i] for i in np.flatnonzero(at)] for at in (messages < split, messages >= split)
        ]

    sizes = np.unique(messages)
    best, least = 0.0, _criterion(_line(timed)[1], _ONE)
    for split in sizes[LEAST : len(sizes) - LEAST + 1].tolist():
        errors = np.concatenate([_line(side)[1] for side in sides(split)])
        if (criterion := _criterion(errors, _TWO)) < least:
            best, least = split, criterion
    below, above = sides(best)
    (small, few), (large, many) = _line(below or above), _line(above)
    parts, random = _parts(above), np.random.default_rng(0)
    samples = [random.choice(t.seconds, (RESAMPLES, len(t.seconds))) for t in above]
    drawn = np.stack([np.median(own, axis=1) for own in samples], axis=1)
    resampled = [_solve(parts, times) for times in drawn]
    alphas, betas = np.percentile(resampled, (_LOW, _HIGH), axis=0).T.tolist()
    worst = float(np.abs([*few, *many]).max())
    return Fit(small, large, best, tuple(alphas), tuple(betas), worst)


def _line(timed: Sequence[Timed]) -> tuple[Link, Floats]:
    """Weighted least squares of the medians, weight 1 / T^2, alpha and beta not below 0, and the
    relative error at each time. With equal weights the largest sizes alone would decide."""
    parts, medians = _parts(timed), np.array([np.median(t.seconds) for t in timed])
    link = _solve(parts, medians)
    return link, parts @ link / medians - 1


def _parts(timed: Sequence[Timed]) -> Floats:
    return np.array([ring(t.ranks, t.bytes) for t in timed])


def _solve(parts: Floats, times: Floats) -> Link:
    scaled = parts / times[:, None]
    size = np.maximum(np.linalg.norm(scaled, axis=0), np.finfo(float).tiny)  # columns alike
    solution, _ = nnls(scaled / size, np.ones(len(times)))
    return Link(*(solution / size).tolist())


def _criterion(errors: Floats, parameters: int) -> float:
    """Schwarz's, for Gaussian errors."""
    squares = max(float(np.mean(np.square(errors))), _EXACT**2)
    return len(errors) * math.log(squares) + parameters * math.log(len(errors))
