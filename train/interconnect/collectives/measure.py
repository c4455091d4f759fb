"""Time a series: the same collective at one size after another, on all its ranks in step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from train.interconnect.collectives.operations import Call, Maker, What, comes_out, put_in
from train.interconnect.collectives.payload import LEAST, calls, whole, wrong
from train.interconnect.collectives.record import Point
from train.interconnect.collectives.sockets import Mesh

#: Batches of a pipelined series; a sample is a batch's time through its calls.
BATCHES = 7


@dataclass(frozen=True)
class Budget:
    """target_s: for the timed calls of a size. cap_s: a size that would take longer ends the
    series, and with it the larger ones."""

    target_s: float = 0.1
    cap_s: float = 2.0


@dataclass(frozen=True)
class Measured:
    points: tuple[Point, ...]
    cut: str | None = None


def series(mesh: Mesh, make: Maker, what: What, sizes: Sequence[int], budget: Budget) -> Measured:
    """Of the first ``what.ranks`` ranks: the same on each of them, by agreement.

    Raises:
        NotImplementedError: this way has no such collective.
    """
    points: list[Point] = []
    for size in sizes:
        length = whole(size, what.operation, what.ranks)
        if points and points[-1].bytes == length:
            continue  # rounded up to the same
        if points and (least := LEAST * foreseen(points, length)) > budget.cap_s:
            return Measured(
                tuple(points),
                f"{LEAST} calls of {length} bytes would take about {least:.1f} s, more than "
                f"{budget.cap_s:g} s",
            )
        points.append(_point(mesh, make, what, size, length, budget))
    return Measured(tuple(points))


def foreseen(points: Sequence[Point], length: int) -> float:
    """Seconds of a call of ``length`` bytes: on the line through the last two sizes, or at least as
    long as the last."""
    last = float(np.median(points[-1].seconds))
    if len(points) < 2:
        return last
    before = float(np.median(points[-2].seconds))
    slope = (last - before) / (points[-1].bytes - points[-2].bytes)
    return last + max(0.0, slope) * (length - points[-1].bytes)


def _point(mesh: Mesh, make: Maker, what: What, size: int, length: int, budget: Budget) -> Point:
    data = put_in(what.operation, mesh.rank, size, what.ranks, seed=length)
    expected = comes_out(what.operation, mesh.rank, size, what.ranks, seed=length)
    call = make(what.operation, what.place, data, what.ranks)
    if call is None:
        raise NotImplementedError(f"{what.way} has no {what.operation} {what.place} of place")

    def differing() -> int:
        call.fresh()
        call.run()
        told = mesh.share([wrong(call.result(), expected)], what.ranks)
        return int(np.sum(told))

    bad = differing()  # makes the graph, too
    mesh.meet(what.ranks)
    once = np.max(mesh.share([_seconds(call.run)], what.ranks))
    count = calls(once, budget.target_s)
    timed = _blocked if what.mode == "blocked" else _pipelined
    with np.errstate(over="ignore"):  # in place, sums of sums grow; the check starts afresh
        seconds, done = timed(mesh, call, count, what.ranks)
    bad += differing()
    slowest = np.max(mesh.share(seconds, what.ranks), axis=0)
    return Point(bytes=length, calls=done, seconds=tuple(slowest.tolist()), wrong=bad)


def _blocked(mesh: Mesh, call: Call, count: int, ranks: int) -> tuple[list[float], int]:
    found = []
    for _ in range(count):
        mesh.meet(ranks)
        found.append(_seconds(call.run))
    return found, count


def _pipelined(mesh: Mesh, call: Call, count: int, ranks: int) -> tuple[list[float], int]:
    each = max(1, count // BATCHES)

    def batch() -> None:
        for _ in range(each):
            call.run()

    mesh.meet(ranks)
    return [_seconds(batch) / each for _ in range(BATCHES)], each * BATCHES


def _seconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
