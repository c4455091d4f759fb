"""Collectives over plain sockets, in the textbook's way: what the wire gives without Horovod.

Rings for all-reduce, reduce-scatter and all-gather (Patarasu and Yuan 2009), a chain in segments
for broadcast, and n - 1 exchanges at growing distance for all-to-all.
"""

from __future__ import annotations

import numpy as np

from train.collectives.mesh import Mesh
from train.collectives.payload import Floats

#: A chain passes on parts of so many bytes, or a sixteenth of the whole where that is more.
SEGMENT = 1 << 16


def all_reduce(mesh: Mesh, data: Floats, ranks: int) -> None:
    """Sum over ``ranks`` ranks, in place."""
    parts = np.array_split(data, ranks)
    _reduce_around(mesh, parts, ranks)
    _gather_around(mesh, parts, ranks)


def reduce_scatter(mesh: Mesh, data: Floats, ranks: int) -> None:
    """Sum over ``ranks`` ranks in this rank's part of ``data``; its other parts are used up."""
    _reduce_around(mesh, np.array_split(data, ranks), ranks, first=mesh.rank - 1)


def all_gather(mesh: Mesh, own: Floats, room: Floats, ranks: int) -> None:
    """All ranks' equal parts, one after another, into ``room``."""
    parts = np.split(room, ranks)
    parts[mesh.rank][:] = own
    _gather_around(mesh, parts, ranks, first=mesh.rank)


def broadcast(mesh: Mesh, data: Floats, ranks: int) -> None:
    """Rank 0's ``data`` into that of the others: each passes on what it has while more comes."""
    length = max(SEGMENT // data.itemsize, -(-data.size // 16))
    parts = [data[at : at + length] for at in range(0, data.size, length)]
    source = mesh.rank - 1 if mesh.rank else None
    to = mesh.rank + 1 if mesh.rank < ranks - 1 else None
    nothing = memoryview(bytearray())
    for number in range(len(parts) + 1):
        coming = number < len(parts) and source is not None
        ready = number > 0 and to is not None
        mesh.exchange(
            to if ready else None, parts[number - 1].data if ready else b"",
            source if coming else None, parts[number].data if coming else nothing,
        )  # fmt: skip


def all_to_all(mesh: Mesh, data: Floats, room: Floats, ranks: int) -> None:
    """Part j of ``data`` to rank j; into part i of ``room`` what rank i has for this one."""
    out, into = np.split(data, ranks), np.split(room, ranks)
    into[mesh.rank][:] = out[mesh.rank]
    for step in range(1, ranks):
        to, source = (mesh.rank + step) % ranks, (mesh.rank - step) % ranks
        mesh.exchange(to, out[to].data, source, into[source].data)


def _reduce_around(mesh: Mesh, parts: list[Floats], ranks: int, first: int | None = None) -> None:
    """Afterwards part ``first + 1`` of this rank, by default rank + 1, is the whole sum."""
    if ranks == 1:
        return
    at = mesh.rank if first is None else first
    to, source = (mesh.rank + 1) % ranks, (mesh.rank - 1) % ranks
    room = np.empty(max(len(part) for part in parts), np.float32)
    for step in range(ranks - 1):
        sending, coming = parts[(at - step) % ranks], parts[(at - step - 1) % ranks]
        part = room[: len(coming)]
        mesh.exchange(to, sending.data, source, part.data)
        coming += part


def _gather_around(mesh: Mesh, parts: list[Floats], ranks: int, first: int | None = None) -> None:
    """From part ``first``, by default rank + 1, which is complete here, to all parts everywhere."""
    if ranks == 1:
        return
    at = mesh.rank + 1 if first is None else first
    to, source = (mesh.rank + 1) % ranks, (mesh.rank - 1) % ranks
    for step in range(ranks - 1):
        sending, coming = parts[(at - step) % ranks], parts[(at - step - 1) % ranks]
        mesh.exchange(to, sending.data, source, coming.data)
