"""What a tournament measured: rates of ordered pairs, with their own spread, and what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from train.interconnect.rounds import Pair

Rates = npt.NDArray[np.float64]

#: 1.4826 median absolute deviations estimate a Gaussian's standard deviation.
MAD_TO_DEVIATION = 1.4826


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
