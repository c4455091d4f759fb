"""One measurement of one direction: bytes from a sender to a receiver over one TCP connection.

The receiver's clock counts, from the moment when the first part of a sample has arrived: what a
switch or a shaper lets pass at once when it was idle is not in the rate. The first sample is no
measurement but a check: every byte of it is compared; so is one after the last.
"""

from __future__ import annotations

import socket
import statistics
import struct
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from train.interconnect.evidence import TcpInfo, tcp_info

BLOCK = 1 << 20  # bytes; what is sent is this pattern again and again
PINGS = 51
_HEAD = struct.Struct("=QB")  # bytes of the sample that follows, whether it is compared
_PING = b"12345678"


class Plan(NamedTuple):
    """samples: of about ``sample_s`` seconds each, within these sizes in bytes. Of each, the first
    ``skip`` bytes are not counted. check: bytes that are compared, before and after. After
    limit_s seconds no further sample is begun; after give_up_s the measurement has failed."""

    samples: int = 7
    sample_s: float = 0.25
    smallest: int = 1 << 20
    largest: int = 1 << 30
    skip: int = 1 << 17
    check: int = 1 << 20
    limit_s: float = 15.0
    give_up_s: float = 60.0


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


def send(connection: socket.socket, plan: Plan, seed: int) -> Sent:
    """
    Raises:
        OSError: the other end is gone, or silent for longer than the connection's time limit, or
            all of it takes longer than the plan's.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = memoryview(pattern(seed))
    begin = time.perf_counter()

    def sample(size: int, *, compared: bool = False) -> float:
        _check_time(begin, plan.give_up_s)
        return _sample(connection, data, size, compared=compared)

    pings = []
    for _ in range(PINGS):
        _check_time(begin, plan.give_up_s)
        pings.append(_ping(connection))
    sample(plan.check, compared=True)
    # how large a sample has to be, by one that is not kept and as large as the smallest
    seconds = sample(plan.smallest)
    size = int(min(max(plan.smallest * plan.sample_s / seconds, plan.smallest), plan.largest))
    for number in range(plan.samples):
        if number and time.perf_counter() - begin > plan.limit_s:
            break
        sample(size)
    sample(plan.check, compared=True)
    told = tcp_info(connection)
    connection.sendall(_HEAD.pack(0, 0))
    return Sent(statistics.median(pings) / 2, min(pings) / 2, told)


def receive(connection: socket.socket, plan: Plan, seed: int) -> Received:
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
        size, compared = _HEAD.unpack(exactly(connection, _HEAD.size))
        if size == 0:
            break
        seconds, differ = _take(connection, size, plan.skip, room, data if compared else None)
        connection.sendall(b"k")
        total += size
        wrong += differ
        if not compared and size > plan.skip:
            rates.append(8 * (size - plan.skip) / seconds)
    return Received(tuple(rates[1:]), total, wrong)  # the first said how large the rest should be


def _check_time(begin: float, limit_s: float) -> None:
    if time.perf_counter() - begin > limit_s:
        raise TimeoutError(f"not done within {limit_s:g} s")


def _ping(connection: socket.socket) -> float:
    begin = time.perf_counter()
    connection.sendall(_PING)
    exactly(connection, len(_PING))
    return time.perf_counter() - begin


def _sample(connection: socket.socket, data: memoryview, size: int, *, compared: bool) -> float:
    """Seconds until the receiver has it all."""
    begin = time.perf_counter()
    connection.sendall(_HEAD.pack(size, compared))
    for start in range(0, size, BLOCK):
        connection.sendall(data[: min(BLOCK, size - start)])
    exactly(connection, 1)
    return time.perf_counter() - begin


def _take(
    connection: socket.socket,
    size: int,
    skip: int,
    room: memoryview,
    expected: npt.NDArray[np.uint8] | None,
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
