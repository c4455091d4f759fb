"""Several connections at the same time between the same two nodes, for links that one cannot fill.

Each sends and checks as one alone would (stream.py), in a thread of its own: moving
the bytes is the kernel's work, during which other threads run. What counts is what all of them
together received while none of them had come to its end.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np

from train.interconnect.measure.evidence import Effort, Watch
from train.interconnect.measure.stream import Plan, Received, Sent, receive, send

T = TypeVar("T")
#: Of the common time, so much at its begin is not counted, as a single one skips its first bytes.
_SKIP = 0.05


class Arrivals(NamedTuple):
    """One connection's counted transfers: when some bytes had arrived, and how many by then."""

    at: list[float]
    total: list[int]

    def note(self, count: int) -> None:
        self.at.append(time.perf_counter())
        self.total.append((self.total[-1] if self.total else 0) + count)


def send_all(connections: Sequence[socket.socket], plan: Plan, seed: int) -> tuple[Sent, Effort]:
    """Latencies are those of the first connection, segments sent again those of all.

    Raises:
        OSError: as ``send``, of any of them.
    """
    agreement = _Agreement(len(connections), plan.give_up_s)

    def one(connection: socket.socket) -> Sent:
        try:
            return send(connection, plan, seed, agreement)
        except OSError:
            agreement.give_up()
            raise

    sent, effort = _together(connections, one)
    first = sent[0]
    if first.tcp is not None:
        again = sum(one.tcp.retransmitted for one in sent if one.tcp is not None)
        first = first._replace(tcp=first.tcp._replace(retransmitted=again))
    return first, effort


class _Agreement:
    """Where connections meet before their samples, so that these run at the same time and end at
    about the same time."""

    def __init__(self, count: int, patience_s: float) -> None:
        self._sizes: list[int] = []
        self._barrier = threading.Barrier(count, timeout=patience_s)

    def __call__(self, size: int) -> int:
        self._sizes.append(size)
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError as error:
            raise ConnectionError("another connection of this pair failed") from error
        return sum(self._sizes) // len(self._sizes)

    def give_up(self) -> None:
        self._barrier.abort()


def receive_all(
    connections: Sequence[socket.socket], plan: Plan, seed: int
) -> tuple[Received, Effort]:
    """
    Raises:
        OSError: as ``receive``, of any of them.
    """
    progress = [Arrivals([], []) for _ in connections]
    notes = dict(zip(connections, progress, strict=True))
    got, effort = _together(connections, lambda c: receive(c, plan, seed, notes[c].note))
    if len(got) == 1:
        return got[0], effort
    rates = rates_together(progress, plan.samples)
    return Received(rates, sum(o.bytes for o in got), sum(o.wrong for o in got)), effort


def rates_together(progress: Sequence[Arrivals], samples: int) -> tuple[float, ...]:
    """bit/s of all connections in equal parts of the time in which each of them received; none
    where there was no such time."""
    if not all(one.at for one in progress):
        return ()
    begin, end = max(one.at[0] for one in progress), min(one.at[-1] for one in progress)
    begin += _SKIP * (end - begin)
    if end <= begin:
        return ()
    edges = np.linspace(begin, end, samples + 1)
    total = sum(np.interp(edges, one.at, one.total) for one in progress)
    return tuple((8 * np.diff(total) / np.diff(edges)).tolist())


def _together(
    connections: Sequence[socket.socket], work: Callable[[socket.socket], T]
) -> tuple[list[T], Effort]:
    """Effort: of the busiest thread, or of all in Python's own code, which only one of them runs at
    a time; and of the one that waited longest."""

    def watched(connection: socket.socket) -> tuple[T, Effort]:
        with Watch(None) as watch:
            done = work(connection)
        return done, watch.effort

    own = os.times().user
    with ThreadPoolExecutor(len(connections)) as pool:
        told = list(pool.map(watched, connections))
    own = os.times().user - own
    efforts = [effort for _, effort in told]
    waits = [effort.waited_s for effort in efforts if effort.waited_s is not None]
    busiest = max(efforts, key=lambda effort: effort.cpu_s / effort.wall_s)
    cpu_s = max(busiest.cpu_s, own) if len(connections) > 1 else busiest.cpu_s
    effort = busiest._replace(cpu_s=cpu_s, waited_s=max(waits, default=None))
    return [done for done, _ in told], effort
