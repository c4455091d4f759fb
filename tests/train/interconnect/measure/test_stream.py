"""One measurement over real TCP on loopback: what it counts, what it notices, how it ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from train.interconnect.measure.evidence import Watch, parse_tcp_info, tcp_info
from train.interconnect.measure.stream import BLOCK, Plan, pattern, receive, send

QUICK = Plan(samples=5, sample_s=0.01, largest=4 << 20)
SEED = 7


@contextmanager
def connection(middle: Callable[[socket.socket, socket.socket], None] | None = None) -> Iterator:
    """Sender's and receiver's end; with ``middle``, that passes on what goes to the receiver."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if middle is None:
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
            ends = [near, far]
        else:
            near = socket.create_connection(listener.getsockname())
            inner_near, _ = listener.accept()
            inner_far = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
            ends = [near, inner_near, inner_far, far]
            for args in ((middle, inner_near, inner_far), (pass_on, inner_far, inner_near)):
                threading.Thread(target=args[0], args=args[1:], daemon=True).start()
        for end in ends:
            end.settimeout(60)
        try:
            yield near, far
        finally:
            for end in ends:
                end.close()


def pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while part := source.recv(1 << 16):
            target.sendall(part)
    except OSError:
        pass


def exchange(plan: Plan, middle: Any = None, seeds: tuple[int, int] = (SEED, SEED)):
    got: list[Any] = []
    with connection(middle) as (near, far):
        thread = threading.Thread(target=lambda: got.append(receive(far, plan, seeds[1])))
        thread.start()
        sent = send(near, plan, seeds[0])
        thread.join(240)
    return sent, got[0]


def test_a_measurement() -> None:
    sent, got = exchange(QUICK)
    assert len(got.rates) == QUICK.samples and got.wrong == 0
    assert min(got.rates) > 0 and max(got.rates) > 1e6
    assert got.bytes >= 2 * QUICK.check + (QUICK.samples + 1) * QUICK.smallest
    assert 0 < sent.latency_min_s <= sent.latency_s < 0.1


def test_the_kernel_says_how_long_it_was_busy() -> None:
    # it counts in ticks of 1 to 10 ms, of which the QUICK plan lasts for two
    sent, _ = exchange(QUICK._replace(sample_s=0.05, largest=64 << 20))
    assert sent.tcp is not None and sent.tcp.path_mtu >= 1500 and 0 < sent.tcp.busy < 10


def test_samples_grow_with_the_rate_up_to_the_largest() -> None:
    _, got = exchange(QUICK._replace(largest=QUICK.smallest))
    assert got.bytes == 2 * QUICK.check + (QUICK.samples + 1) * QUICK.smallest


def test_a_changed_byte_is_found_where_it_matters() -> None:
    def flip(source: socket.socket, target: socket.socket) -> None:
        passed = 0
        try:
            while part := bytearray(source.recv(1 << 16)):
                at = 300_000 - passed  # within the first sample, which is compared
                if 0 <= at < len(part):
                    part[at] ^= 1
                passed += len(part)
                target.sendall(part)
        except OSError:
            pass

    _, got = exchange(QUICK, flip)
    assert got.wrong == 1 and len(got.rates) == QUICK.samples


def test_another_pattern_is_not_taken_for_the_right_one() -> None:
    _, got = exchange(QUICK, seeds=(1, 2))
    assert got.wrong > 0.99 * 2 * QUICK.check
    assert len(pattern(1)) == BLOCK and pattern(1) != pattern(2)


def test_a_time_limit_leaves_at_least_one_sample() -> None:
    _, got = exchange(QUICK._replace(limit_s=0.0))
    assert len(got.rates) == 1


def test_a_sender_that_goes_away() -> None:
    with connection() as (near, far):
        near.sendall(b"12345678")
        near.close()
        with pytest.raises(ConnectionError, match="the other end closed"):
            receive(far, QUICK, SEED)


def test_a_receiver_that_says_nothing() -> None:
    with connection() as (near, _far):
        near.settimeout(0.1)
        with pytest.raises(TimeoutError):
            send(near, QUICK, SEED)


def test_what_the_kernel_tells_of_a_connection() -> None:
    with connection() as (near, far):
        near.sendall(b"x" * 1000)
        far.recv(1000)
        told = tcp_info(near)
    assert told is not None and told.rtt < 0.1 and told.retransmitted < 5
    assert parse_tcp_info(b"\0" * 104) is None  # an old kernel's


def test_a_watch_sees_work_and_traffic() -> None:
    with Watch("lo") as watch:
        exchange(QUICK._replace(largest=QUICK.smallest))
        sum(range(200_000))
    assert 0 < watch.effort.cpu_s <= watch.effort.wall_s * 1.1
    assert watch.effort.waited_s is None or watch.effort.waited_s >= 0
    assert watch.counted is not None and watch.counted.sent > 7 * QUICK.smallest


def test_a_watch_of_no_interface() -> None:
    with Watch("none0") as watch:
        pass
    assert watch.counted is None
