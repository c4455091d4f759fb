"""Which network interface ranks talk over, its address, and the bytes that it carried, as the
kernel and InfiniBand ports count them: the proof that gradients crossed the links, and which ones.

Interfaces are those of the rank's network namespace; what other programs send is counted, too.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from train.errors import ConfigError
from train.record.measurements import LinkTraffic
from train.record.mount import boot_id

#: Variable by which a site names the interface for its ranks.
NAME = "HOROSCALE_INTERFACE"
LOOPBACK = "lo"
#: Data counters of InfiniBand ports count words of four bytes (IBA, PortXmitData).
_IB_WORD = 4


@dataclass(frozen=True)
class Interface:
    name: str
    address: str  # IPv4


@dataclass(frozen=True)
class Host:
    """A host and its interfaces: name -> addresses, those of IPv4 first."""

    name: str
    interfaces: Mapping[str, tuple[str, ...]]

    def named(self, name: str) -> Interface:
        """The interface of that name: also an alternative name, the label of a further address
        (eth0:1), or what ``ip link`` prints (eth0.5@eth0)."""
        known = name
        if name not in self.interfaces:
            with contextlib.suppress(OSError):
                known = socket.if_indextoname(socket.if_nametoindex(name.partition("@")[0]))
        if address := self.ipv4(known):
            return Interface(known, address)
        found = "has no IPv4 address" if known in self.interfaces else "is not there"
        raise ConfigError(
            f"network interface {name!r} {found} on {self.name}; there: {self}. Name another as "
            f"`interface` of the site file, or by hand in {NAME}, or none to have it chosen"
        )

    def ipv4(self, name: str) -> str | None:
        """The first one of an interface."""
        return next((a for a in self.interfaces.get(name, ()) if ":" not in a), None)

    def holder(self, address: str | None) -> str | None:
        """The interface that has the address."""
        return next((name for name, own in self.interfaces.items() if address in own), None)

    def __str__(self) -> str:
        listed = (f"{n} ({self.ipv4(n) or 'no IPv4 address'})" for n in sorted(self.interfaces))
        return ", ".join(listed) or "none at all"


def this_host() -> Host:
    """With all interfaces that this process can see. A further address under a label of its own,
    as eth0:1, belongs to eth0."""
    addresses: dict[str, list[str]] = {}
    for name, own in psutil.net_if_addrs().items():
        addresses.setdefault(name.partition(":")[0], []).extend(
            a.address.partition("%")[0]  # of a link-local one: the interface once more
            for a in own
            if a.family in (socket.AF_INET, socket.AF_INET6)
        )
    ordered = {name: tuple(sorted(own, key=lambda a: ":" in a)) for name, own in addresses.items()}
    return Host(socket.gethostname(), ordered)


def own_interface(environment: Mapping[str, str], *, nodes: int) -> Interface:
    """The interface that this rank serves and talks on: the one that ``HOROSCALE_INTERFACE`` names,
    on a single node loopback, else that of this host's name, else that of the default route."""
    host = this_host()
    if name := environment.get(NAME):
        return host.named(name)
    if nodes == 1:
        return host.named(LOOPBACK)
    addresses = addresses_of(host.name)
    outward = (a for a in addresses if not ipaddress.ip_address(a).is_loopback)
    outside = {a: held for a in outward if (held := host.holder(a))}
    for address, held in outside.items():
        if own := host.ipv4(held) if ":" in address else address:
            return Interface(held, own)
    route = host.holder(_source_elsewhere()) or next(iter(outside.values()), LOOPBACK)
    if route != LOOPBACK:
        return host.named(route)
    raise ConfigError(
        f"cannot tell which network interface of {host.name} leads to the other nodes: its name "
        f"stands for {', '.join(addresses) or 'no address'}, and there is no default route. There: "
        f"{host}. Name one as `interface` of the site file, or by hand in {NAME}"
    )


def machine() -> str:
    """The running kernel: pretend nodes of a practice cluster have names of their own, yet share
    one machine's cores."""
    return boot_id() or socket.gethostname()


def network_here() -> str:
    """Of this kernel and network namespace: pretended nodes may share one, and so its addresses."""
    return f"{machine()}:{Path('/proc/self/ns/net').readlink()}"


def addresses_of(host: str) -> list[str]:
    """Of both families, in the order in which Gloo tries them."""
    with contextlib.suppress(OSError):
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in infos))
    return []


def _source_elsewhere() -> str | None:
    """Own address of the default route; connecting UDP sends nothing."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # an address on no network (RFC 5737)
        return str(probe.getsockname()[0])
    return None


class Counted(NamedTuple):
    """Bytes since some time in the past."""

    received: int
    sent: int


def read_counters(devices: Path = Path("/sys/class/infiniband")) -> dict[str, Counted]:
    """Of interfaces and of InfiniBand ports, as mlx5_0:1; what cannot be read is left out."""
    counters: dict[str, Counted] = {}
    with contextlib.suppress(OSError):
        for name, c in psutil.net_io_counters(pernic=True, nowrap=False).items():
            counters[name] = Counted(c.bytes_recv, c.bytes_sent)
    for port in sorted(devices.glob("*/ports/*")):
        with contextlib.suppress(OSError, ValueError):
            received, sent = (
                _IB_WORD * int((port / "counters" / f"port_{way}_data").read_text())
                for way in ("rcv", "xmit")
            )
            counters[f"{port.parent.parent.name}:{port.name}"] = Counted(received, sent)
    return counters


def moved(
    host: str, before: Mapping[str, Counted], after: Mapping[str, Counted]
) -> tuple[LinkTraffic, ...]:
    """What passed between two readings; interfaces that moved nothing, came or went, or whose
    counters were set back, are left out."""
    links = []
    for name, then in before.items():
        now = after.get(name, then)
        received, sent = now.received - then.received, now.sent - then.sent
        if received >= 0 and sent >= 0 and received + sent > 0:
            links.append(
                LinkTraffic(host=host, interface=name, received_bytes=received, sent_bytes=sent)
            )
    return tuple(links)
