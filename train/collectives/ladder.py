"""Which sizes are measured, how often, and what a rank sends for each."""

from __future__ import annotations

from train.collectives.record import Operation

SMALLEST = 8
WORD = 4  # bytes of a float32
LEAST, MOST = 7, 200


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
