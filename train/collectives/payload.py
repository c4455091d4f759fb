"""Arrays whose results are known exactly: small whole numbers of (rank, index, seed).

Sums of them are exact in 32-bit floating point for up to two million ranks, whatever the order, so
one wrong element is a wrong result and never rounding.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_VALUES = 7
_STEP = 3  # from rank to rank; no divisor of _VALUES


def _residues(count: int, seed: int) -> npt.NDArray[np.int64]:
    index = np.arange(count, dtype=np.int64)
    return (index * 2654435761 + (index >> 7) + seed) % _VALUES


def values(rank: int, count: int, seed: int) -> Floats:
    """What ``rank`` puts in; 1 to 7."""
    return ((_residues(count, seed) + _STEP * rank) % _VALUES + 1).astype(np.float32)


def total(ranks: int, count: int, seed: int) -> Floats:
    """The sum of :func:`values` over the first ``ranks`` ranks."""
    residues, found = _residues(count, seed), np.zeros(count, np.int64)
    for shift in range(_VALUES):
        # ranks shift, shift + 7, ... put in the same
        found += (residues + _STEP * shift) % _VALUES * len(range(shift, ranks, _VALUES))
    return (found + ranks).astype(np.float32)


def wrong(found: Floats, expected: Floats) -> int:
    """Elements that differ; all of them where the length does."""
    if found.shape != expected.shape:
        return max(found.size, expected.size)
    return int(np.count_nonzero(found != expected))
