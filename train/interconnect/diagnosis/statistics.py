"""What a tournament measured, and how values are compared with their peers.

Rates of ordered pairs, with their own spread, and what failed; then what is slow, what is half of
the others, and what slowness would show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from train.config.frozen import Frozen
from train.interconnect.measure.rounds import Pair

SENDS, RECEIVES = True, False
Rates = npt.NDArray[np.float64]
#: 1.4826 median absolute deviations estimate a Gaussian's standard deviation.
MAD_TO_DEVIATION = 1.4826


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


@dataclass(frozen=True)
class Matrix:
    """One population of measurements that may be compared: one size, one class of path.

    rates: [n, n] bit/s, row sends, column receives, each the median of its samples; NaN where
    nothing was measured. spread: [n, n], deviation of such a median, relative to it. failed: pairs
    that were tried and gave no number.
    """

    nodes: tuple[str, ...]
    rates: Rates
    spread: Rates
    failed: Mapping[Pair, str]

    @property
    def count(self) -> int:
        return len(self.nodes)


def matrix_of(
    nodes: Sequence[str],
    samples: Mapping[Pair, Sequence[float]],
    failed: Mapping[Pair, str] | None = None,
) -> Matrix:
    """samples: of each pair that was measured, bit/s, at least one."""
    shape = (len(nodes), len(nodes))
    rates, spread = np.full(shape, np.nan), np.full(shape, np.nan)
    for pair, values in samples.items():
        middle = float(np.median(values))
        rates[pair] = middle
        spread[pair] = deviation_of_median(values)
    return Matrix(tuple(nodes), rates, spread, dict(failed or {}))


def deviation_of_median(values: Sequence[float]) -> float:
    """Relative to it: that of k Gaussian values scatters 1.25 / sqrt(k) times as much as one."""
    return 1.2533 * robust_deviation(values) / float(np.median(values)) / len(values) ** 0.5


def robust_deviation(values: Sequence[float] | Rates) -> float:
    """1.4826 times the median distance from the median."""
    middle = np.median(values)
    return MAD_TO_DEVIATION * float(np.median(np.abs(np.asarray(values) - middle)))
