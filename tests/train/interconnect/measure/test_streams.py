"""Several connections of one pair: what they reach together, on loopback and by arithmetic."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from train.interconnect.measure.stream import Plan
from train.interconnect.measure.streams import Arrivals, rates_together, receive_all, send_all

QUICK = Plan(samples=5, sample_s=0.02, largest=1 << 22)


def linear(begin: float, end: float, rate: float) -> Arrivals:
    """rate: bytes/s"""
    at = [begin + (end - begin) * k / 100 for k in range(101)]
    return Arrivals(at, [round((t - begin) * rate) for t in at])


def test_together_they_reach_the_sum_while_all_receive() -> None:
    rates = rates_together([linear(0, 10, 1e6), linear(2, 12, 3e6)], 4)
    assert rates == pytest.approx([8 * 4e6] * 4, rel=1e-4)


def test_a_fall_in_the_middle_is_seen() -> None:
    half = Arrivals([0.0, 5.0, 10.0], [0, 5_000_000, 7_500_000])
    rates = rates_together([half, linear(0, 10, 1e6)], 4)
    assert rates[0] == pytest.approx(16e6, rel=1e-3) and rates[-1] == pytest.approx(12e6, rel=1e-3)


def test_without_a_common_time_there_is_no_rate() -> None:
    assert rates_together([linear(0, 1, 1e6), linear(2, 3, 1e6)], 4) == ()
    assert rates_together([linear(0, 1, 1e6), Arrivals([], [])], 4) == ()


@pytest.mark.parametrize("count", [1, 4])
def test_connections_send_and_check_all_their_bytes(count: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        senders = [socket.create_connection(listener.getsockname()) for _ in range(count)]
        receivers = [listener.accept()[0] for _ in range(count)]
    # so large that none is over before another has begun
    plan = QUICK._replace(streams=count, smallest=1 << 24, largest=1 << 25)
    with ThreadPoolExecutor(2) as pool:
        sending = pool.submit(send_all, senders, plan, 7)
        got, effort = pool.submit(receive_all, receivers, plan, 7).result(60)
        sent, _ = sending.result(60)
    for one in (*senders, *receivers):
        one.close()
    assert len(got.rates) == QUICK.samples and min(got.rates) > 0 and got.wrong == 0
    # a check before and after, one transfer that tells the size, the samples
    assert got.bytes >= count * (2 * plan.check + 6 * plan.smallest)
    assert 0 < sent.latency_min_s <= sent.latency_s
    assert effort.cpu_s > 0 and effort.wall_s > 0


def test_where_one_connection_breaks_the_others_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        senders = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        receivers = [listener.accept()[0] for _ in range(3)]
    for one in (*senders, *receivers):
        one.settimeout(5)
    receivers[1].close()
    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        sending = pool.submit(send_all, senders, QUICK, 7)
        for rest in (receivers[0], receivers[2]):
            pool.submit(receive_all, [rest], QUICK, 7)
        with pytest.raises(OSError):
            sending.result(30)
        for one in (*senders, *receivers):
            one.close()
    assert time.monotonic() - began < 20


def test_one_connection_with_other_bytes_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        senders = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        receivers = [listener.accept()[0] for _ in range(2)]
    plan = QUICK._replace(streams=2)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(send_all, senders[:1], plan, 7)
        second = pool.submit(send_all, senders[1:], plan, 8)
        got, _ = pool.submit(receive_all, receivers, plan, 7).result(60)
        first.result(60), second.result(60)
    for one in (*senders, *receivers):
        one.close()
    assert got.wrong > 2**20
