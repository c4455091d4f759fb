"""Bytes through the network interfaces of this node, as the kernel and InfiniBand ports count them.

The proof that gradients crossed the links, and of which ones. Interfaces are those of the network
namespace that the rank is in; what other programs send through them is counted, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from train.record import LinkTraffic

#: Data counters of InfiniBand ports count words of four bytes (IBA, PortXmitData).
_IB_WORD = 4


class Counted(NamedTuple):
    """Bytes since some time in the past."""

    received: int
    sent: int


def is_port(name: str) -> bool:
    """Whether a counter is an InfiniBand port's, as mlx5_0:1, and no interface's."""
    return ":" in name


def read_counters(root: Path = Path("/")) -> dict[str, Counted]:
    """All counters that can be read, by interface; what cannot be read is left out."""
    found: dict[str, Counted] = {}
    with contextlib.suppress(OSError, ValueError):
        found |= parse_net_dev((root / "proc/self/net/dev").read_text(encoding="ascii"))
    for port in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        with contextlib.suppress(OSError, ValueError):
            received, sent = (
                _IB_WORD * int((port / "counters" / f"port_{way}_data").read_text())
                for way in ("rcv", "xmit")
            )
            found[f"{port.parent.parent.name}:{port.name}"] = Counted(received, sent)
    return found


def parse_net_dev(text: str) -> dict[str, Counted]:
    """The text of /proc/net/dev: two lines of heading, then 8 columns received and 8 sent.

    Raises:
        ValueError: it is not of that form.
    """
    found = {}
    for line in text.splitlines()[2:]:
        name, _, columns = line.rpartition(":")
        counts = [int(column) for column in columns.split()]
        if not name or len(counts) != 16:
            raise ValueError(f"not a line of /proc/net/dev: {line!r}")
        found[name.strip()] = Counted(received=counts[0], sent=counts[8])
    return found


def moved(
    host: str, before: Mapping[str, Counted], after: Mapping[str, Counted]
) -> tuple[LinkTraffic, ...]:
    """What passed between two readings; interfaces that moved nothing, came or went, or whose
    counters were set back, are left out."""
    found = []
    for name, then in before.items():
        now = after.get(name, then)
        received, sent = now.received - then.received, now.sent - then.sent
        if received >= 0 and sent >= 0 and received + sent > 0:
            found.append(
                LinkTraffic(host=host, interface=name, received_bytes=received, sent_bytes=sent)
            )
    return tuple(found)


def outside(traffic: Iterable[LinkTraffic], host: str) -> list[LinkTraffic]:
    """What passed the interfaces of ``host`` that lead to others."""
    return [link for link in traffic if link.host == host and link.interface != "lo"]


def carriers(links: Iterable[LinkTraffic], payload: int) -> list[str]:
    """Interfaces that both sent and received at least ``payload`` bytes.

    Where ``payload`` bytes are added up over nodes, each node must send as many, since the others'
    sums need its part, and receive as many, whatever the algorithm. What it reads from a file
    server goes one way, however much it is.
    """
    return [
        link.interface for link in links if payload <= min(link.sent_bytes, link.received_bytes)
    ]
