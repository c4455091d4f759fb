"""What is measured, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from train.interconnect.collectives.operations import What
from train.interconnect.collectives.record import MODES, OPERATIONS, WAYS, Operation, Place


def plan(world: int) -> Iterator[What]:
    """What is measured, in order; Horovod beside plain sockets.

    All-reduce is measured among the first 2, 3, ... ranks, too: a model is fitted to few ranks and
    tried on more.
    """
    for operation in OPERATIONS:
        places: tuple[Place, ...] = (
            ("out", "in") if operation in ("all_reduce", "broadcast") else ("out",)
        )
        for place in places:
            for mode in MODES:
                for way in WAYS:
                    yield What(way, operation, place, mode, world)
    for ranks in fewer(world):
        for way in WAYS:
            yield What(way, "all_reduce", "in", "blocked", ranks)


#: All-reduce is what training waits for; the others are measured at every fourth size.
COARSE = 2


def ladder(operation: Operation, all_sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of a series, the smallest and every power of 2, or of 4, above it."""
    return tuple(all_sizes if operation == "all_reduce" else all_sizes[::COARSE])


def fewer(world: int) -> tuple[int, ...]:
    """Smaller numbers of ranks: all up to 8, then powers of two."""
    return tuple(n for n in range(2, world) if n <= 8 or n & (n - 1) == 0)
