"""Collectives over plain sockets between all ranks: what the wire gives without Horovod.

In the textbook's way: rings for all-reduce, reduce-scatter and all-gather (Patarasuk and Yuan
2009), a chain in segments for broadcast, and n - 1 exchanges at growing distance for all-to-all.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Callable, Sequence

import numpy as np

from train.interconnect.collectives.payload import Floats

Address = tuple[str, int]

_HELLO = struct.Struct("=16sI")
#: Peers may take so long to open their connections, or to send what is due, in seconds.
PATIENCE_S = 60.0
#: Who calls has to say who it is within this time.
STRANGER_S = 5.0
#: A chain passes on parts of so many bytes, or a sixteenth of the whole where that is more.
SEGMENT = 1 << 16


class Mesh:
    """Connections of one rank to all others, by their ranks.

    Raises:
        OSError: a peer cannot be reached, is gone, or silent for longer than PATIENCE_S.
    """

    def __init__(self, rank: int, peers: dict[int, socket.socket]) -> None:
        self.rank, self.size, self._peers = rank, len(peers) + 1, peers
        self._ready = selectors.DefaultSelector()
        for peer in peers.values():
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.setblocking(False)

    def exchange(
        self,
        to: int | None, data: memoryview | bytes,
        source: int | None, room: memoryview,
    ) -> None:  # fmt: skip
        """Send ``data`` to one rank while ``room`` is filled by another, or the same."""
        sending = _flat(data) if to is not None else _flat(b"")
        filling = _flat(room) if source is not None else _flat(b"")
        while sending or filling:
            # try first: what is small passes without asking the kernel when it may
            if sending and to is not None:
                sending = sending[_some(self._peers[to].send, sending) :]
            if filling and source is not None:
                filling = filling[_take(self._peers[source], filling) :]
            if sending or filling:
                wanted = self._wanted(to if sending else None, source if filling else None)
                _wait(self._ready, wanted)

    def _wanted(self, to: int | None, source: int | None) -> dict[socket.socket, int]:
        found: dict[socket.socket, int] = {}
        for rank, event in ((to, selectors.EVENT_WRITE), (source, selectors.EVENT_READ)):
            if rank is not None:
                peer = self._peers[rank]
                found[peer] = found.get(peer, 0) | event
        return found

    def share(self, values: Sequence[float], ranks: int) -> list[list[float]]:
        """The equally many ``values`` of each of the first ``ranks`` ranks; they all meet here."""
        form = struct.Struct(f"={len(values)}d")
        found, room = [list(values)] * ranks, bytearray(form.size)
        for step in range(1, ranks):
            to, source = (self.rank + step) % ranks, (self.rank - step) % ranks
            self.exchange(to, form.pack(*values), source, memoryview(room))
            found[source] = list(form.unpack(room))
        return found

    def meet(self, ranks: int) -> None:
        """Return when all of the first ``ranks`` ranks are here: dissemination in log2 steps."""
        room, distance = bytearray(1), 1
        while distance < ranks:
            self.exchange(
                (self.rank + distance) % ranks, b"m", (self.rank - distance) % ranks,
                memoryview(room),
            )  # fmt: skip
            distance *= 2

    def close(self) -> None:
        self._ready.close()
        for peer in self._peers.values():
            peer.close()


def _flat(data: memoryview | bytes) -> memoryview:
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")  # an empty view cannot be cast


def _some(send: Callable[[memoryview], int], data: memoryview) -> int:
    try:
        return send(data)
    except BlockingIOError:
        return 0


def _take(peer: socket.socket, room: memoryview) -> int:
    try:
        got = peer.recv_into(room)
    except BlockingIOError:
        return 0
    if got == 0:
        raise ConnectionError("another rank closed its connection")
    return got


def _wait(ready: selectors.BaseSelector, wanted: dict[socket.socket, int]) -> None:
    for key in list(ready.get_map().values()):
        if key.fileobj not in wanted:
            ready.unregister(key.fileobj)
    for peer, events in wanted.items():
        if peer in ready.get_map():
            ready.modify(peer, events)
        else:
            ready.register(peer, events)
    if not ready.select(PATIENCE_S):
        raise TimeoutError(f"no byte from or to another rank for {PATIENCE_S:.0f} s")


def connect(rank: int, listener: socket.socket, addresses: Sequence[Address], token: bytes) -> Mesh:
    """Join all ranks: each knocks at those below it and lets those above in.

    Args:
        addresses: where each rank listens.
        token: 16 bytes that only these ranks know; other callers are sent away.
    """
    here, peers = listener.getsockname()[0], {}
    listener.settimeout(PATIENCE_S)
    for peer in range(rank):
        joined = socket.create_connection(addresses[peer], PATIENCE_S, source_address=(here, 0))
        joined.sendall(_HELLO.pack(token, rank))
        peers[peer] = joined
    while len(peers) < len(addresses) - 1:
        caller, _ = listener.accept()
        caller.settimeout(STRANGER_S)
        try:
            said = caller.recv(_HELLO.size, socket.MSG_WAITALL)
        except OSError:
            said = b""  # somebody who looks for open ports
        if len(said) == _HELLO.size and said[:16] == token:
            peers[_HELLO.unpack(said)[1]] = caller
        else:
            caller.close()
    return Mesh(rank, peers)


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
