"""alpha and beta apart for small and for large messages.

One line seldom holds for all sizes: protocols change from eager to rendezvous, and shapers and
buffers let a burst pass at once. Where two lines explain the times better than one, by more than
their further parameters would by chance (Schwarz 1978), the sizes are parted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analysis.model.fit import WORST, Cost, Fit, Floats, Foretold, Timed, fit, line

#: Sizes on either side of a break; two would be met exactly by any line.
LEAST = 4
#: alpha and beta; with a break two of each, and the break, which is searched for and therefore
#: counts as three (Hall, Osborn and Sakkas 2013).
_ONE, _TWO = 2, 7
#: Relative errors below this are no better explained by anything.
_EXACT = 1e-6


class Segments(NamedTuple):
    """A line for messages (bytes over ranks) below ``parted``, one from there on; equal where one
    line holds for all, and ``parted`` is 0 then."""

    small: Fit
    large: Fit
    parted: float

    @property
    def worst(self) -> float:
        """Largest relative error at a size that was fitted."""
        return max(self.small.worst, self.large.worst)

    @property
    def is_usable(self) -> bool:
        return self.worst <= WORST

    def of(self, ranks: int, size: float) -> Fit:
        return self.small if size / ranks < self.parted else self.large

    def seconds(self, ranks: int, size: float) -> float:
        return self.of(ranks, size).seconds(ranks, size)


def fit_segments(timed: Sequence[Timed], cost: Cost, seed: int = 0) -> Segments:
    """
    Raises:
        ValueError: fewer than two sizes, or none with a time above 0.
    """
    messages = sorted({_message(t) for t in timed})
    best, least = 0.0, _criterion(line(timed, cost)[1], _ONE)
    for parted in messages[LEAST : len(messages) - LEAST + 1]:
        errors = np.concatenate([line(side, cost)[1] for side in _sides(timed, parted)])
        if (criterion := _criterion(errors, _TWO)) < least:
            best, least = parted, criterion
    # only what was chosen is drawn anew for its intervals
    if best == 0:
        whole = fit(timed, cost, seed)
        return Segments(whole, whole, best)
    small, large = (fit(side, cost, seed) for side in _sides(timed, best))
    return Segments(small, large, best)


def foretell(found: Segments, timed: Sequence[Timed]) -> tuple[Foretold, ...]:
    return tuple(
        Foretold(t.ranks, t.bytes, t.median, found.seconds(t.ranks, t.bytes)) for t in timed
    )


def _message(timed: Timed) -> float:
    return timed.bytes / timed.ranks


def _sides(timed: Sequence[Timed], parted: float) -> tuple[list[Timed], list[Timed]]:
    return (
        [t for t in timed if _message(t) < parted],
        [t for t in timed if _message(t) >= parted],
    )


def _criterion(errors: Floats, parameters: int) -> float:
    """Schwarz's, for Gaussian errors."""
    squares = max(float(np.mean(np.square(errors))), _EXACT**2)
    return len(errors) * math.log(squares) + parameters * math.log(len(errors))
