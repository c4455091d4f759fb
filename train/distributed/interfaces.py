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
from train.record.mount import boot_id
from train.record.run import LinkTraffic

#: Variable by which a site names the interface for its ranks.
NAME = "HOROSCALE_INTERFACE"
LOOPBACK = "lo"
_ROUTE_UP = 0x1
#: Data counters of InfiniBand ports count words of four bytes (IBA, PortXmitData).
_IB_WORD = 4


#: Name of an interface -> its addresses, those of IPv4 first.
Here = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Interface:
    name: str
    address: str  # IPv4


def interfaces_here() -> Here:
    """All interfaces that this process can see.

    A further address of an interface under a label of its own, as eth0:1, belongs to eth0.
    """
    found: dict[str, list[str]] = {}
    for name, addresses in psutil.net_if_addrs().items():
        own = found.setdefault(name.partition(":")[0], [])
        own += [
            a.address.partition("%")[0]  # of a link-local one: the interface once more
            for a in addresses
            if a.family in (socket.AF_INET, socket.AF_INET6)
        ]
    return {name: tuple(sorted(own, key=lambda a: ":" in a)) for name, own in found.items()}


def ipv4(addresses: Iterable[str]) -> str | None:
    """The first IPv4 address."""
    return next((address for address in addresses if ":" not in address), None)


def named(name: str, here: Here, host: str) -> Interface:
    """The interface of that name on this host: also an alternative name, the label of a further
    address (eth0:1), or what ``ip link`` prints (eth0.5@eth0).

    Raises:
        ConfigError: it is not there, or has no IPv4 address.
    """
    known = name if name in here else _kernel_name(name.partition("@")[0])
    address = ipv4(here.get(known, ()))
    if address is not None:
        return Interface(known, address)
    there = _listed(here)
    found = "has no IPv4 address" if known in here else "is not there"
    raise ConfigError(
        f"network interface {name!r} {found} on {host}; there: {there or 'none at all'}. "
        f"Name another as `interface` of the site file, or by hand in {NAME}, or none to have it "
        "chosen"
    )


def _kernel_name(name: str) -> str:
    """The name by which the kernel lists an interface; ``name`` where it knows none such."""
    try:
        return socket.if_indextoname(socket.if_nametoindex(name))
    except OSError:
        return name


def _listed(here: Here) -> str:
    return ", ".join(f"{n} ({ipv4(a) or 'no IPv4 address'})" for n, a in sorted(here.items()))


def own_interface(environment: Mapping[str, str], *, nodes: int) -> Interface:
    """The interface that this rank serves and talks on.

    The one that ``HOROSCALE_INTERFACE`` names; on a single node loopback; else the one that holds
    an address of this host's name; else that of the default route.

    Raises:
        ConfigError: there is no such interface; the text names those that are there.
    """
    here, host = interfaces_here(), socket.gethostname()
    if name := environment.get(NAME):
        return named(name, here, host)
    if nodes == 1:
        return named(LOOPBACK, here, host)
    return _by_name_or_route(here, _addresses_of(host), _routes(), host)


def _by_name_or_route(here: Here, addresses: list[str], routes: str, host: str) -> Interface:
    outside = [a for a in addresses if not ipaddress.ip_address(a).is_loopback]
    holders = [(a, name) for a in outside for name, own in here.items() if a in own]
    for wanted, name in holders:
        if address := wanted if ":" not in wanted else ipv4(here[name]):
            return Interface(name, address)
    if route := default_route(routes) or next((name for _, name in holders), None):
        return named(route, here, host)
    raise ConfigError(
        f"cannot tell which network interface of {host} leads to the other nodes: its name stands "
        f"for {', '.join(addresses) or 'no address'}, and there is no default route. There: "
        f"{_listed(here) or 'none'}. Name one as `interface` of the site file, or by hand in {NAME}"
    )


def network_here() -> str:
    """Of this kernel and network namespace: pretended nodes may share one, and so its addresses."""
    host = socket.gethostname()
    try:
        namespace = str(Path("/proc/self/ns/net").stat().st_ino)
    except OSError:
        namespace = host
    return f"{boot_id() or host}:{namespace}"


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
    if address := ipv4(here.get(preferred, ())):
        return Interface(preferred, address)
    source = _source_towards(peer)
    for name, own in here.items():
        if source in own:
            return Interface(name, source)
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
    """Of both families, in the order in which Gloo tries them."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


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
