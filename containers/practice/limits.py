"""Slow links on purpose, as lists of tc commands: of a node's whole link, or towards one node.

A link is shaped where its packets leave: what a node sends, at its eth0; what it receives, at the
bridge's end. A token bucket lets short bursts pass at memory speed, so bursts are kept small. It
adds no latency.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .links import node_port
from .place import CONTROLLER, NODES, PracticeError
from .shape import Shape
from .spaces import in_network_argv

OFF = "off"
WAYS = ("both", "send", "receive")
_RATE = re.compile(r"[1-9][0-9]{0,5}(kbit|mbit|gbit)")
_BURST, _QUEUE = "16kb", "50ms"
#: Towards all other nodes, where only the way to one of them is slow: no limit worth the name.
_REST = "100gbit"


def check_rate(text: str) -> str:
    """Raises: PracticeError: neither a rate nor ``off``."""
    if text != OFF and not _RATE.fullmatch(text):
        raise PracticeError(f"rate {text!r} found, expected one like 200mbit, or off")
    return text


def limit_commands(
    shape: Shape,
    node: str,
    rate: str,
    keepers: Mapping[str, int],
    *,
    way: str = "both",
    to: str | None = None,
    rest: str | None = None,
) -> list[list[str]]:
    """Limit what a node sends and receives, or, with ``to``, what it sends to that one node.

    rest: with ``to``, the rate towards all others. Each call replaces what was there before.
    """
    own, bridge = keepers[node], keepers[CONTROLLER]
    if to is not None:
        address = next(n.address for n in shape.nodes if n.name == to)
        commands = [*_clear("eth0"), *_towards("eth0", address, rate, rest or _REST)]
        return [in_network_argv(own, command) for command in commands]
    ends = {"send": (own, "eth0"), "receive": (bridge, node_port(node))}
    chosen = [end for name, end in ends.items() if way in ("both", name)]
    return [
        in_network_argv(space, command)
        for space, device in chosen
        for command in (*_clear(device), *([] if rate == OFF else [_bucket(device, rate)]))
    ]


def nodes_named(word: str) -> tuple[str, ...]:
    return NODES if word == "all" else (word,)


def _clear(device: str) -> list[list[str]]:
    """As it was when it was made; where nothing was changed, deleting alone would be an error."""
    queue = ["dev", device, "root"]
    return [["tc", "qdisc", "replace", *queue, "pfifo"], ["tc", "qdisc", "del", *queue]]


def _bucket(device: str, rate: str) -> list[str]:
    return ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate,
            "burst", _BURST, "latency", _QUEUE]  # fmt: skip


def _towards(device: str, address: str, rate: str, rest: str) -> list[list[str]]:
    classes = (("1:1", rate), ("1:2", rest))
    return [
        ["tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "htb", "default", "2"],
        *(
            ["tc", "class", "add", "dev", device, "parent", "1:", "classid", name,
             "htb", "rate", speed, "burst", _BURST, "cburst", _BURST]
            for name, speed in classes
        ),
        ["tc", "filter", "add", "dev", device, "parent", "1:", "protocol", "ip", "prio", "1",
         "u32", "match", "ip", "dst", f"{address}/32", "flowid", "1:1"],
    ]  # fmt: skip
