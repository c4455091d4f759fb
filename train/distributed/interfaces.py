"""Which network interface ranks talk over, its address, and the bytes that it carried.

The interface is named, or found by plain rules. Bytes are those that the kernel and InfiniBand
ports count: the proof that gradients crossed the links, and of which ones. Interfaces are those of
the network namespace that the rank is in; what other programs send through them is counted, too.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from train.errors import ConfigError
from train.record.run import LinkTraffic

#: Variable by which a site names the interface for its ranks.
NAME = "HOROSCALE_INTERFACE"
LOOPBACK = "lo"
_ROUTE_UP = 0x1
#: Data counters of InfiniBand ports count words of four bytes (IBA, PortXmitData).
_IB_WORD = 4


@dataclass(frozen=True)
class Interface:
    name: str
    address: str  # IPv4


def interfaces_here() -> dict[str, str | None]:
    """Names of the network interfaces that this process can see -> IPv4 address, None without.

    A further address of an interface under a label of its own, as eth0:1, is no interface.
    """
    return {
        name: next((a.address for a in addresses if a.family == socket.AF_INET), None)
        for name, addresses in psutil.net_if_addrs().items()
        if ":" not in name
    }


def named(name: str, here: Mapping[str, str | None], host: str) -> Interface:
    """The interface of that name on this host.

    Raises:
        ConfigError: it is not there, or has no IPv4 address.
    """
    address = here.get(name)
    if address is not None:
        return Interface(name, address)
    there = ", ".join(f"{n} ({a or 'no IPv4 address'})" for n, a in sorted(here.items()))
    found = "has no IPv4 address" if name in here else "is not there"
    raise ConfigError(
        f"network interface {name!r} {found} on {host}; there: {there or 'none at all'}. "
        f"Name another as `interface` of the site file, or by hand in {NAME}, or none to have it "
        "chosen"
    )


def own_interface(environment: Mapping[str, str], *, nodes: int) -> Interface:
    """The interface that this rank serves and talks on.

    The one that ``HOROSCALE_INTERFACE`` names; on a single node loopback; else the one that holds
    the address of this host's name; else that of the default route.

    Raises:
        ConfigError: there is no such interface; the text names those that are there.
    """
    here, host = interfaces_here(), socket.gethostname()
    if name := environment.get(NAME):
        return named(name, here, host)
    if nodes == 1:
        return named(LOOPBACK, here, host)
    return _by_name_or_route(here, _addresses_of(host), _routes(), host)


def _by_name_or_route(
    here: Mapping[str, str | None], addresses: list[str], routes: str, host: str
) -> Interface:
    for name, address in here.items():
        if address in addresses and not ipaddress.ip_address(address).is_loopback:
            return Interface(name, address)
    if route := default_route(routes):
        return named(route, here, host)
    there = ", ".join(f"{n} ({a})" for n, a in sorted(here.items()) if a)
    raise ConfigError(
        f"cannot tell which network interface of {host} leads to the other nodes: its name stands "
        f"for {', '.join(addresses) or 'no address'}, and there is no default route. There: "
        f"{there or 'none'}. Name one as `interface` of the site file, or by hand in {NAME}"
    )


def towards(peer: str, preferred: str, environment: Mapping[str, str]) -> Interface:
    """The interface by which this rank talks to ranks that meet at ``peer``, an IPv4 address.

    The one named for this rank; else the one called as rank 0's is; else the one that the kernel
    takes to get there (nodes may name the same network differently).

    Raises:
        ConfigError: the named one is not here, or nothing leads to ``peer``.
    """
    here, host = interfaces_here(), socket.gethostname()
    if name := environment.get(NAME):
        return named(name, here, host)
    if address := here.get(preferred):
        return Interface(preferred, address)
    source = _source_towards(peer)
    for name, address in here.items():
        if address is not None and address == source:
            return Interface(name, address)
    return named(preferred, here, host)


def default_route(table: str) -> str | None:
    """Interface of the default route with the smallest metric, from the text of /proc/net/route."""
    found = []
    for line in table.splitlines()[1:]:
        name, target, _, flags, _, _, metric, mask, *_ = line.split()
        if target == mask == "00000000" and int(flags, 16) & _ROUTE_UP:
            found.append((int(metric), name))
    return min(found)[1] if found else None


def _routes() -> str:
    try:
        return Path("/proc/net/route").read_text(encoding="ascii")
    except OSError:
        return ""


def _addresses_of(host: str) -> list[str]:
    try:
        return socket.gethostbyname_ex(host)[2]
    except OSError:
        return []


def _source_towards(peer: str) -> str | None:
    """Own address that the kernel would send from; connecting UDP sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((peer, 9))
            return str(asked.getsockname()[0])
        except OSError:
            return None


class Counted(NamedTuple):
    """Bytes since some time in the past."""

    received: int
    sent: int


def is_port(name: str) -> bool:
    """Whether a counter is an InfiniBand port's, as mlx5_0:1, and no interface's."""
    return ":" in name


def read_counters() -> dict[str, Counted]:
    """All counters that can be read, by interface; what cannot be read is left out."""
    found: dict[str, Counted] = {}
    with contextlib.suppress(OSError):
        counters = psutil.net_io_counters(pernic=True, nowrap=False)
        found = {name: Counted(c.bytes_recv, c.bytes_sent) for name, c in counters.items()}
    return found | port_counters(Path("/sys/class/infiniband"))


def port_counters(devices: Path) -> dict[str, Counted]:
    """Of InfiniBand ports."""
    found = {}
    for port in sorted(devices.glob("*/ports/*")):
        with contextlib.suppress(OSError, ValueError):
            received, sent = (
                _IB_WORD * int((port / "counters" / f"port_{way}_data").read_text())
                for way in ("rcv", "xmit")
            )
            found[f"{port.parent.parent.name}:{port.name}"] = Counted(received, sent)
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
