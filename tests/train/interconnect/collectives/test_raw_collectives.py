"""The raw path on real sockets of this machine, a thread per rank."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest

from train.distributed.interfaces import Interface
from train.interconnect.collectives.measure import Budget
from train.interconnect.collectives.operations import What, comes_out, put_in, raw_maker
from train.interconnect.collectives.payload import total, values, wrong
from train.interconnect.collectives.record import OPERATIONS, Operation, Place, Series
from train.interconnect.collectives.sockets import Mesh, connect

T = TypeVar("T")
TOKEN = bytes(range(16))


def among(ranks: int, work: Callable[[Mesh], T]) -> list[T]:
    """What ``work`` gives on each of ``ranks`` connected ranks."""
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=ranks) for _ in range(ranks)]
    addresses = [listener.getsockname() for listener in listeners]

    def rank(number: int) -> T:
        mesh = connect(number, listeners[number], addresses, TOKEN)
        try:
            return work(mesh)
        finally:
            mesh.close()

    try:
        with ThreadPoolExecutor(ranks) as pool:
            return list(pool.map(rank, range(ranks)))
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.parametrize(
    ("operation", "place"),
    [*((operation, "out") for operation in OPERATIONS), ("all_reduce", "in"), ("broadcast", "in")],
)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_every_rank_ends_with_the_exact_result(
    operation: Operation, place: Place, ranks: int
) -> None:
    def work(mesh: Mesh) -> list[int]:
        found = []
        for size in (8, 60, 4096, 3 * 2**20):
            data = put_in(operation, mesh.rank, size, ranks, seed=size)
            call = raw_maker(mesh)(operation, place, data, ranks)
            assert call is not None
            for _ in range(2):  # the second time as the first
                call.fresh()
                call.run()
                expected = comes_out(operation, mesh.rank, size, ranks, seed=size)
                found.append(wrong(call.result(), expected))
        return found

    assert among(ranks, work) == [[0] * 8] * ranks


@pytest.mark.tf
def test_each_rank_tells_of_its_own_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes may name one network differently; Horovod's gathering is that of threads here."""
    from train.interconnect.collectives import run

    told: dict[int, object] = {}
    mine, all_there = threading.local(), threading.Barrier(2)

    def gather(own: object) -> list[object]:
        told[mine.rank] = own
        all_there.wait(30)
        return [told[rank] for rank in range(2)]

    def work(mesh: Mesh) -> Series:
        mine.rank = mesh.rank
        what = What("raw", "all_reduce", "in", "blocked", 2)
        interface = Interface(("lo", "no-such")[mesh.rank], "127.0.0.1")
        return run._series(mesh, raw_maker(mesh), what, (8,), Budget(0.001, 60), interface)

    monkeypatch.setattr(run.hvd, "allgather_object", gather)
    for series in among(2, work):
        assert [carried.interface for carried in series.carried] == ["lo", "no-such"]
        assert [carried.sent_bytes is None for carried in series.carried] == [False, True]


def test_the_first_ranks_alone() -> None:
    def work(mesh: Mesh) -> int | None:
        if mesh.rank >= 2:
            return None
        call = raw_maker(mesh)("all_reduce", "in", values(mesh.rank, range(1000), 1), 2)
        assert call is not None
        call.run()
        return wrong(call.result(), total(2, range(1000), 1))

    assert among(3, work) == [0, 0, None]


def test_share_and_meet() -> None:
    def work(mesh: Mesh) -> list[list[float]]:
        for _ in range(50):
            mesh.meet(mesh.size)
        return mesh.share([float(mesh.rank), 0.5], mesh.size)

    assert among(4, work) == [[[0.0, 0.5], [1.0, 0.5], [2.0, 0.5], [3.0, 0.5]]] * 4


def test_nobody_passes_a_meeting_before_all_are_there() -> None:
    here, lock, seen = 0, threading.Lock(), []

    def work(mesh: Mesh) -> None:
        nonlocal here
        for turn in range(1, 30):
            with lock:
                here += 1
            mesh.meet(mesh.size)
            seen.append(here >= 3 * turn)

    among(3, work)
    assert len(seen) == 87
    assert all(seen)


def test_a_stranger_is_sent_away() -> None:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    addresses = [listener.getsockname() for listener in listeners]
    with socket.create_connection(addresses[0]) as stranger, ThreadPoolExecutor(2) as pool:
        stranger.sendall(bytes(20))
        meshes = list(pool.map(lambda r: connect(r, listeners[r], addresses, TOKEN), range(2)))
        assert stranger.recv(1) == b""
    for mesh, listener in zip(meshes, listeners, strict=True):
        mesh.close()
        listener.close()


def test_a_rank_that_goes_is_told_and_not_waited_for() -> None:
    def work(mesh: Mesh) -> str:
        if mesh.rank == 1:
            return "gone"
        try:
            mesh.meet(2)
        except ConnectionError as error:
            return str(error)
        return "met"

    assert among(2, work)[0] in ("another rank closed its connection", "[Errno 32] Broken pipe",
                                 "[Errno 104] Connection reset by peer")  # fmt: skip


def test_one_wrong_element_is_found() -> None:
    found = total(3, range(1000), seed=4)
    assert wrong(found, total(3, range(1000), seed=4)) == 0
    found[17] += 1
    assert wrong(found, total(3, range(1000), seed=4)) == 1
    assert wrong(found[:10], total(3, range(1000), seed=4)) == 1000


@pytest.mark.parametrize("ranks", [1, 2, 6, 7, 8, 23, 300])
def test_the_sum_is_the_sum(ranks: int) -> None:
    slow = np.sum(
        [values(rank, range(500), seed=9) for rank in range(ranks)], axis=0, dtype=np.float64
    )
    assert np.array_equal(total(ranks, range(500), seed=9), slow)


def test_values_differ_by_rank_index_and_seed() -> None:
    one = values(0, range(3000), seed=0)
    assert set(one) == set(range(1, 252))
    for rank in (1, 2, 4, 7, 8, 64, 128, 250):
        assert wrong(one, values(rank, range(3000), seed=0)) == 3000, rank
    assert wrong(one, values(0, range(3000), seed=1)) == 3000
    for shift in (1, 2, 64, 1024):  # a part in the wrong place
        assert wrong(one[:-shift], one[shift:]) > 0.9 * (3000 - shift), shift
    assert np.array_equal(one[100:200], values(0, range(100, 200), seed=0))
