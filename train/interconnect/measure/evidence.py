"""What the kernel says about a measurement: why it was as fast as it was, and where it went."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from train.distributed.interfaces import Counted, read_counters

_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class TcpInfo(NamedTuple):
    """Of one end of a connection (struct tcp_info of linux/tcp.h). Seconds and bytes.

    busy: time with data to send; of it, rwnd_limited the receiver had no room and sndbuf_limited
    the sender's buffer was too small: what is left, the network was the limit.
    """

    path_mtu: int
    rtt: float
    min_rtt: float
    retransmitted: int  # segments
    busy: float
    rwnd_limited: float
    sndbuf_limited: float


#: name -> struct code and offset; a kernel that knows fewer fields gives a shorter answer
_FIELDS = {
    "path_mtu": ("I", 60), "rtt": ("I", 68), "min_rtt": ("I", 148), "retransmitted": ("I", 100),
    "busy": ("Q", 168), "rwnd_limited": ("Q", 176), "sndbuf_limited": ("Q", 184),
}  # fmt: skip
_LENGTH = 192
_IN_MICROSECONDS = {"rtt", "min_rtt", "busy", "rwnd_limited", "sndbuf_limited"}


def tcp_info(connection: socket.socket) -> TcpInfo | None:
    """None where the kernel does not tell (before Linux 4.10)."""
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH)
    except OSError:
        return None
    return parse_tcp_info(told)


def parse_tcp_info(told: bytes) -> TcpInfo | None:
    if len(told) < _LENGTH:
        return None
    values: dict[str, Any] = {}
    for name, (code, offset) in _FIELDS.items():
        (value,) = struct.unpack_from(f"={code}", told, offset)
        values[name] = value / 1e6 if name in _IN_MICROSECONDS else value
    return TcpInfo(**values)


class Effort(NamedTuple):
    """Of one thread over a stretch of time: seconds on a core, waiting for one, and in all."""

    cpu_s: float
    waited_s: float | None
    wall_s: float


class Watch:
    """Context: what this thread used meanwhile, and what passed the interface of its node, and its
    InfiniBand ports together (None: it has none that can be read). interface None: no bytes."""

    def __init__(self, interface: str | None) -> None:
        self._interface = interface

    def __enter__(self) -> Watch:
        self._all = read_counters() if self._interface is not None else {}
        self._counted = self._all.get(self._interface or "")
        self._delay = _run_delay()
        self._cpu, self._wall = time.thread_time(), time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wall, cpu = time.perf_counter() - self._wall, time.thread_time() - self._cpu
        delay = _run_delay()
        waited = None if delay is None or self._delay is None else delay - self._delay
        self.effort = Effort(cpu, waited, wall)
        now = read_counters() if self._interface is not None else {}
        self.counted = _difference(self._counted, now.get(self._interface or ""))
        self.ports = _ports(self._all, now)


def _run_delay() -> float | None:
    """Seconds that this thread was ready and had no core; None where the kernel keeps no account
    (CONFIG_SCHED_INFO)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_SCHEDSTAT.read_text(encoding="ascii").split()[1]) / 1e9
    return None


def _ports(before: Mapping[str, Counted], after: Mapping[str, Counted]) -> Counted | None:
    """RDMA passes the interface by: its bytes are in the counters of ports (mlx5_0:1) only."""
    moved = [_difference(then, after.get(name)) for name, then in before.items() if ":" in name]
    known = [one for one in moved if one is not None]
    if not known:
        return None
    return Counted(sum(one.received for one in known), sum(one.sent for one in known))


def _difference(before: Counted | None, after: Counted | None) -> Counted | None:
    if before is None or after is None:
        return None
    return Counted(after.received - before.received, after.sent - before.sent)
