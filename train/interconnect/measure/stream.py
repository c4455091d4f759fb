"""One measurement of one direction: bytes from a sender to a receiver over one TCP connection.

The receiver's clock counts, from the moment when the first part of a sample has arrived: what a
switch or a shaper lets pass at once when it was idle is not in the rate. The first and the last
transfer are no samples but checks: every byte of them is compared. In between, transfers that do
not count grow until one takes long enough to tell how large a sample has to be.
"""

from __future__ import annotations

import socket
import statistics
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from train.interconnect.measure.evidence import TcpInfo, tcp_info

BLOCK = 1 << 20  # bytes; what is sent is this pattern again and again
PINGS = 51
_HEAD = struct.Struct("=QB")  # bytes of what follows, and what it is for
_COUNTED, _COMPARED, _TRIED = 0, 1, 2
#: A transfer may be so many times the one before.
_GROWTH = 16
_PING = b"12345678"


class Plan(NamedTuple):
    """samples: of about ``sample_s`` seconds each, within these sizes in bytes. Of each, the first
    ``skip`` bytes are not counted. check: bytes that are compared, before and after. After
    limit_s seconds no further sample is begun; after give_up_s the measurement has failed.
    streams: connections at the same time (train.interconnect.measure.streams)."""

    samples: int = 7
    sample_s: float = 0.25
    smallest: int = 1 << 20
    largest: int = 1 << 30
    skip: int = 1 << 17
    check: int = 1 << 20
    limit_s: float = 15.0
    give_up_s: float = 60.0
    streams: int = 1


class Sent(NamedTuple):
    """latency_s: half of a round trip of 8 bytes, the median of 51, and the shortest."""

    latency_s: float
    latency_min_s: float
    tcp: TcpInfo | None


class Received(NamedTuple):
    """rates: bit/s, one per sample. wrong: bytes that are not what was sent."""

    rates: tuple[float, ...]
    bytes: int
    wrong: int


def pattern(seed: int) -> bytes:
    """Random, so that a byte in the wrong place differs, too; another for each pair."""
    return np.random.default_rng(seed).bytes(BLOCK)


#: From the size of a sample that one connection would take to that of all that run together; may
#: wait for the others.
Agree = Callable[[int], int]


def send(
    connection: socket.socket, plan: Plan, seed: int, agree: Agree = lambda size: size
) -> Sent:
    """
    Raises:
        OSError: the other end is gone, or silent for longer than the connection's time limit, or
            all of it takes longer than the plan's.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = memoryview(pattern(seed))
    begin = time.perf_counter()
    until = begin + plan.give_up_s

    def transfer(size: int, purpose: int) -> float:
        return _transfer(connection, data, size, purpose, until)

    pings = []
    for _ in range(PINGS):
        _check_time(until)
        pings.append(_ping(connection))
    transfer(plan.check, _COMPARED)
    size, seconds = 0, 0.0
    wanted = plan.smallest
    # one burst that a buffer takes at once says nothing of the rate that follows
    while seconds < plan.sample_s / 2 and size < wanted:
        size, seconds = wanted, transfer(wanted, _TRIED)
        wanted = _next_size(size, seconds, plan)
    size = agree(wanted)
    for number in range(plan.samples):
        if number and time.perf_counter() - begin > plan.limit_s:
            break
        transfer(size, _COUNTED)
    transfer(plan.check, _COMPARED)
    told = tcp_info(connection)
    connection.sendall(_HEAD.pack(0, 0))
    return Sent(statistics.median(pings) / 2, min(pings) / 2, told)


#: Told of each part of a counted transfer: how many bytes just arrived.
Note = Callable[[int], None]


def receive(connection: socket.socket, plan: Plan, seed: int, note: Note | None = None) -> Received:
    """
    Raises:
        OSError: as ``send``.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(PINGS):
        connection.sendall(exactly(connection, len(_PING)))
    data = np.frombuffer(pattern(seed), np.uint8)
    room = memoryview(bytearray(BLOCK))
    rates: list[float] = []
    total = wrong = 0
    while True:
        size, purpose = _HEAD.unpack(exactly(connection, _HEAD.size))
        if size == 0:
            break
        expected = data if purpose == _COMPARED else None
        counting = note if purpose == _COUNTED else None
        seconds, differ = _take(connection, size, plan.skip, room, expected, counting)
        connection.sendall(b"k")
        total += size
        wrong += differ
        if purpose == _COUNTED and size > plan.skip:
            rates.append(8 * (size - plan.skip) / seconds)
    return Received(tuple(rates), total, wrong)


def _next_size(size: int, seconds: float, plan: Plan) -> int:
    """Bytes that would take ``sample_s`` at the rate of the last ``size`` bytes."""
    wanted = min(size * plan.sample_s / seconds, _GROWTH * size)
    return int(min(max(wanted, plan.smallest), plan.largest))


def _check_time(until: float) -> None:
    if time.perf_counter() > until:
        raise TimeoutError("not done within its time limit")


def _ping(connection: socket.socket) -> float:
    begin = time.perf_counter()
    connection.sendall(_PING)
    exactly(connection, len(_PING))
    return time.perf_counter() - begin


def _transfer(
    connection: socket.socket, data: memoryview, size: int, purpose: int, until: float
) -> float:
    """Seconds until the receiver has it all."""
    begin = time.perf_counter()
    connection.sendall(_HEAD.pack(size, purpose))
    for start in range(0, size, BLOCK):
        _check_time(until)
        connection.sendall(data[: min(BLOCK, size - start)])
    exactly(connection, 1)
    return time.perf_counter() - begin


def _take(
    connection: socket.socket,
    size: int,
    skip: int,
    room: memoryview,
    expected: npt.NDArray[np.uint8] | None,
    note: Note | None,
) -> tuple[float, int]:
    """Seconds from ``skip`` bytes on, or from the start for less; bytes that differ."""
    taken = wrong = 0
    begin = time.perf_counter()
    counted = size <= skip
    while taken < size:
        # never beyond the end of the pattern, nor of what is skipped, so that both are met exactly
        ends = BLOCK - taken % BLOCK, size - taken, *([] if counted else [skip - taken])
        got = connection.recv_into(room, min(ends))
        if got == 0:
            raise ConnectionError("the sender closed the connection in the middle of a sample")
        if expected is not None:
            at = taken % BLOCK
            wrong += int(
                np.count_nonzero(np.frombuffer(room[:got], np.uint8) != expected[at : at + got])
            )
        taken += got
        if note is not None:
            note(got)
        if not counted and taken == skip:
            counted, begin = True, time.perf_counter()
    return time.perf_counter() - begin, wrong


def exactly(connection: socket.socket, count: int) -> bytes:
    """Raises: OSError: the other end is gone or silent."""
    parts = []
    while count:
        part = connection.recv(count)
        if not part:
            raise ConnectionError("the other end closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
