"""How values are compared with their peers: what is slow, what is half of them, what would show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from train.frozen import Frozen
from train.interconnect.matrix import Matrix, Rates, robust_deviation

SENDS, RECEIVES = True, False


class Limits(Frozen):
    """What counts as slow: both far below the peers' scatter and below a relevant share of them."""

    z: float = 3.5  # robust deviations below the median (Iglewicz and Hoaglin 1993)
    low: float = 0.93  # of the median; ClusterKit's threshold (of its maximum)
    floor: float = 0.01  # scatter is taken to be at least this, or three equal nodes had none
    false_links: float = 0.05  # healthy links suspected per tournament, at most, by chance
    small: int = 8  # nodes, below which a side is scored by its best partner, not by a quantile
    quantile: float = 0.75


class Scale(NamedTuple):
    """Median and scatter of peers."""

    middle: float
    deviation: float

    def deviations(self, value: float) -> float:
        return (value - self.middle) / self.deviation

    def visible(self, limits: Limits, z: float) -> float:
        """What lies below this share of the middle is slow."""
        return max(0.0, min(limits.low, 1 - z * self.deviation / self.middle))

    def is_slow(self, value: float, limits: Limits, z: float) -> bool:
        return self.deviations(value) < -z and value < limits.low * self.middle


class Split(NamedTuple):
    """Places of the values below the widest gap, and above it; ratio: of their medians."""

    slower: list[int]
    faster: list[int]
    ratio: float

    def __str__(self) -> str:
        return f"{len(self.slower)} of {len(self.slower) + len(self.faster)}"


def scale_of(values: Sequence[float], floor: float) -> Scale:
    """floor: of the deviation, as a share of the median."""
    middle = float(np.median(values))
    return Scale(middle, max(robust_deviation(values), floor * middle))


def scale_in(values: Sequence[float], matrix: Matrix, limits: Limits) -> Scale:
    """Of what was measured in a matrix: never less scatter than repetitions of one pair show."""
    repeats = matrix.spread[np.isfinite(matrix.spread)]
    own = float(np.median(repeats)) if len(repeats) else 0.0
    return scale_of(values, max(limits.floor, own))


def split(values: Sequence[float], limits: Limits) -> Split | None:
    """Half of them or more, clearly apart from a faster rest: who is normal cannot be seen."""
    if len(values) < 3:
        return None
    order = [int(place) for place in np.argsort(values, kind="stable")]
    sort = np.array([values[place] for place in order])
    gap = int(np.argmax(sort[1:] / sort[:-1])) + 1
    low, high = sort[:gap], sort[gap:]
    scatter = max(robust_deviation(low) / low[-1], robust_deviation(high) / high[0], limits.floor)
    apart = 1 - low[-1] / high[0]
    if 2 * gap < len(sort) or apart < max(1 - limits.low, limits.z * scatter):
        return None
    return Split(sorted(order[:gap]), sorted(order[gap:]), float(np.median(low) / np.median(high)))


def side_rates(matrix: Matrix, limits: Limits) -> dict[tuple[int, bool], float]:
    """What each node sends, and receives, with its better partners; NaN with none."""
    return {
        (node, way): _better(matrix.rates[node] if way else matrix.rates[:, node], limits)
        for node in range(matrix.count)
        for way in (SENDS, RECEIVES)
    }


def _better(rates: Rates, limits: Limits) -> float:
    found = rates[np.isfinite(rates)]
    if not len(found):
        return float("nan")
    if len(rates) < limits.small:
        return float(found.max())
    return float(np.quantile(found, limits.quantile, method="higher"))
