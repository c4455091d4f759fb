"""What a rank sends in a collective: which sizes, how often, and values of known sums.

The values are small whole numbers of (rank, index, seed). Sums of them are exact in 32-bit floating
point for up to 65,000 ranks, whatever the order, so one wrong element is a wrong result and never
rounding.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from train.interconnect.collectives.record import Operation

Floats = npt.NDArray[np.float32]
_VALUES = 251  # prime, so that no power of two of ranks or elements repeats
_STEP = 97  # from rank to rank
SMALLEST = 8
WORD = 4  # bytes of a float32
LEAST, MOST = 7, 200


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


def sizes(largest: int, smallest: int = SMALLEST) -> tuple[int, ...]:
    """Powers of two, in bytes, both ends included."""
    found = []
    size = smallest
    while size <= largest:
        found.append(size)
        size *= 2
    return tuple(found)


def whole(size: int, operation: Operation, ranks: int) -> int:
    """``size`` rounded up to so many bytes that all ranks hold equal parts of whole elements."""
    unit = WORD if operation in ("all_reduce", "broadcast") else WORD * ranks
    return -(-size // unit) * unit


def calls(seconds_each: float, target_s: float) -> int:
    """How often a call of ``seconds_each`` is timed; as IMB does, within limits."""
    if seconds_each <= 0:
        return MOST
    return int(min(max(target_s / seconds_each, LEAST), MOST))
