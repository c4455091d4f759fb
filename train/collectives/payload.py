"""Arrays whose results are known exactly: small whole numbers of (rank, index, seed).

Sums of them are exact in 32-bit floating point for up to 65,000 ranks, whatever the order, so one
wrong element is a wrong result and never rounding.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_VALUES = 251  # prime, so that no power of two of ranks or elements repeats
_STEP = 97  # from rank to rank


def _residues(part: range, seed: int) -> npt.NDArray[np.int64]:
    index = np.arange(part.start, part.stop, dtype=np.int64)
    return (index * 2654435761 + (index >> 7) + seed) % _VALUES


def values(rank: int, part: range, seed: int) -> Floats:
    """What ``rank`` puts in at these places; 1 to 251."""
    return ((_residues(part, seed) + _STEP * rank) % _VALUES + 1).astype(np.float32)


def total(ranks: int, part: range, seed: int) -> Floats:
    """The sum of :func:`values` over the first ``ranks`` ranks."""
    # it depends on the residue only
    each = np.arange(_VALUES)
    sums = np.zeros(_VALUES, np.int64)
    for rank in range(ranks):
        sums += (each + _STEP * rank) % _VALUES + 1
    return sums.astype(np.float32)[_residues(part, seed)]


def wrong(found: Floats, expected: Floats) -> int:
    """Elements that differ; all of them where the length does."""
    if found.shape != expected.shape:
        return max(found.size, expected.size)
    return int(np.count_nonzero(found != expected))
