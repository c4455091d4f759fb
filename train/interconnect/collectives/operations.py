"""What is timed: one collective of one size, by either way, ready to be called again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from train.interconnect.collectives import sockets as raw
from train.interconnect.collectives.payload import WORD, Floats, total, values, whole
from train.interconnect.collectives.record import Mode, Operation, Place, Way
from train.interconnect.collectives.sockets import Mesh


class What(NamedTuple):
    """A series; see train.interconnect.collectives.record.Series."""

    way: Way
    operation: Operation
    place: Place
    mode: Mode
    ranks: int


class Call(NamedTuple):
    """run: the collective, once; this is timed. result: what it left. fresh: first input again."""

    run: Callable[[], None]
    result: Callable[[], Floats]
    fresh: Callable[[], None]


class Maker(Protocol):
    """A way: makes calls of ``operation`` over the first ``ranks`` ranks; None: it has none."""

    def __call__(
        self, operation: Operation, place: Place, data: Floats, ranks: int
    ) -> Call | None: ...


def put_in(operation: Operation, rank: int, size: int, ranks: int, seed: int) -> Floats:
    """The input of ``rank`` for a series' size in bytes: of all-gather its part only."""
    count = whole(size, operation, ranks) // WORD
    return values(rank, range(count // ranks if operation == "all_gather" else count), seed)


def comes_out(operation: Operation, rank: int, size: int, ranks: int, seed: int) -> Floats:
    """What ``rank`` must then hold."""
    count = whole(size, operation, ranks) // WORD
    part = range(rank * (count // ranks), (rank + 1) * (count // ranks))
    match operation:
        case "all_reduce":
            return total(ranks, range(count), seed)
        case "reduce_scatter":
            return total(ranks, part, seed)
        case "broadcast":
            return values(0, range(count), seed)
        case "all_gather":
            first = range(count // ranks)
            return np.concatenate([values(r, first, seed) for r in range(ranks)])
        case "all_to_all":
            return np.concatenate([values(r, part, seed) for r in range(ranks)])


def raw_maker(mesh: Mesh) -> Maker:
    def make(operation: Operation, place: Place, data: Floats, ranks: int) -> Call | None:
        if place == "in":
            return _in_place(mesh, operation, data, ranks)
        room = np.empty(data.size * (ranks if operation == "all_gather" else 1), np.float32)
        kept = room
        if operation == "reduce_scatter":
            kept = np.array_split(room, ranks)[mesh.rank]

        def run() -> None:
            match operation:
                case "all_gather":
                    raw.all_gather(mesh, data, room, ranks)
                case "all_to_all":
                    raw.all_to_all(mesh, data, room, ranks)
                case _:
                    room[:] = data
                    _OVERWRITING[operation](mesh, room, ranks)

        return Call(run, lambda: kept, lambda: None)

    return make


_OVERWRITING: dict[Operation, Callable[[Mesh, Floats, int], None]] = {
    "all_reduce": raw.all_reduce,
    "reduce_scatter": raw.reduce_scatter,
    "broadcast": raw.broadcast,
}


def _in_place(mesh: Mesh, operation: Operation, data: Floats, ranks: int) -> Call | None:
    if operation not in ("all_reduce", "broadcast"):
        return None  # the others' results have other places by nature
    own = data.copy()

    def fresh() -> None:
        own[:] = data

    return Call(lambda: _OVERWRITING[operation](mesh, own, ranks), lambda: own, fresh)
