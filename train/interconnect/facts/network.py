"""The interface that is measured, as the kernel's own files tell of it.

/sys shows the network namespace that mounted it, /proc/self/net and ioctl the one that this process
is in. Both may know an interface of that name and mean two, which their hardware addresses tell.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from train.interconnect.facts.probe import Answer, fact, read
from train.interconnect.facts.record import Fact, Role

_SIOCGIFMTU = 0x8921
_SIOCGIFHWADDR = 0x8927
#: Of linux/if_arp.h.
_LINK_TYPES = {1: "Ethernet", 32: "InfiniBand", 772: "loopback"}
_NET_DEV = ("bytes", "packets", "errors", "drops", "fifo", "frame", "compressed", "multicast")
_FROM_SYS: tuple[tuple[str, str, Role], ...] = (
    ("speed, Mbit/s", "speed", "same"), ("duplex", "duplex", "same"), ("driver", "device", "same"),
    ("carrier changes", "carrier_changes", "counter"),
)  # fmt: skip
_COUNTED = ("errors", "drops", "fifo", "frame")


def network(interface: str, root: Path = Path("/")) -> Iterator[Fact]:
    own = root / "sys/class/net" / interface
    yield fact("network", "MTU", mtu(interface))
    yield fact("network", "link type", link_type(interface))
    same = read(own / "address").text == hardware_address(interface)
    for name, file, role in _FROM_SYS:
        told = Answer(None, "/sys shows another network namespace")
        if same:
            told = _driver(own) if name == "driver" else _setting(own / file)
        yield fact("network", name, told, role)
    yield from counters(interface, read(root / "proc/self/net/dev"))
    yield from retransmissions(read(root / "proc/self/net/snmp"))


def mtu(interface: str) -> Answer:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            told = fcntl.ioctl(asked, _SIOCGIFMTU, struct.pack("16si12x", interface.encode(), 0))
        except OSError as error:
            return Answer(None, f"{interface}: {error.strerror}")
    return Answer(str(struct.unpack("16si12x", told)[1]))


def link_type(interface: str) -> Answer:
    told = _hardware(interface)
    if told is None:
        return Answer(None, f"{interface}: the kernel does not tell")
    number: int = struct.unpack_from("H", told, 16)[0]
    return Answer(_LINK_TYPES.get(number, f"type {number}"))


def hardware_address(interface: str) -> str | None:
    told = _hardware(interface)
    return None if told is None else told[18:24].hex(":")


def _hardware(interface: str) -> bytes | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            return fcntl.ioctl(asked, _SIOCGIFHWADDR, struct.pack("40s", interface.encode()))
        except OSError:
            return None


def _setting(path: Path) -> Answer:
    """A link that is down or virtual has an error or -1 for an answer."""
    told = read(path)
    if told.text in ("-1", "unknown"):
        return Answer(None, f"{path.name} of this interface is not known to the kernel")
    return told


def _driver(own: Path) -> Answer:
    try:
        return Answer((own / "device/driver").resolve(strict=True).name)
    except OSError:
        return Answer(None, "a virtual interface has no driver")


def counters(interface: str, told: Answer) -> Iterator[Fact]:
    """Errors and drops of /proc/net/dev: 8 columns received, 8 sent."""
    row = None
    for line in (told.text or "").splitlines():
        name, _, columns = line.rpartition(":")
        if name.strip() == interface:
            row = columns.split()
    why = told.why or (None if row else f"{interface} is not in /proc/net/dev")
    for offset, way in ((0, "received"), (8, "sent")):
        for name in _COUNTED:
            value = row[offset + _NET_DEV.index(name)] if row and len(row) == 16 else None
            if (way, name) != ("sent", "frame"):  # there it counts collisions
                yield fact("network", f"{way} {name}", Answer(value, why), "counter")


def retransmissions(told: Answer) -> Iterator[Fact]:
    """TCP segments sent again by the whole node, of /proc/net/snmp."""
    rows = [line.split() for line in (told.text or "").splitlines() if line.startswith("Tcp:")]
    value = None
    if len(rows) == 2 and "RetransSegs" in rows[0]:
        value = rows[1][rows[0].index("RetransSegs")]
    why = told.why or (None if value else "no RetransSegs in /proc/net/snmp")
    yield fact("network", "TCP segments sent again", Answer(value, why), "counter")
