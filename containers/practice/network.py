"""The cluster's network as lists of commands: one bridge, one link per node and for the login; and
links that are slow on purpose.

A link is shaped where its packets leave: what a node sends, at its eth0; what it receives, at the
bridge's end. A token bucket lets short bursts pass at memory speed, so bursts are kept small. It
adds no latency.
"""

from __future__ import annotations

from collections.abc import Mapping

from .place import BRIDGE, CONTROLLER, NODES, Place, Shape
from .spaces import in_network_argv

LOGIN_PORT = "hslogin"  # the bridge's end of the login's link
PREFIX = 24


def node_port(node: str) -> str:
    """The bridge's end of a node's link: hsn1 for node1. The node's own end is its eth0."""
    return f"hsn{node.removeprefix('node')}"


def controller_commands(place: Place, shape: Shape, keeper: int) -> list[list[str]]:
    """The bridge, which has the controller's address, and the login's link to it."""
    inside = [
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", BRIDGE, "type", "bridge"],
        ["ip", "address", "add", f"{shape.controller}/{PREFIX}", "dev", BRIDGE],
        ["ip", "link", "set", BRIDGE, "up"],
        ["ip", "link", "set", LOGIN_PORT, "master", BRIDGE, "up"],
    ]
    link = place.login_link
    return [
        ["ip", "link", "add", link, "type", "veth",
         "peer", "name", LOGIN_PORT, "netns", str(keeper)],
        *(in_network_argv(keeper, command) for command in inside),
        ["ip", "address", "add", f"{shape.login}/{PREFIX}", "dev", link],
        ["ip", "link", "set", link, "up"],
    ]  # fmt: skip


def node_commands(shape: Shape, node: str, keepers: Mapping[str, int]) -> list[list[str]]:
    """A node's link: its eth0 with its address, and the other end on the bridge."""
    bridge, own = keepers[CONTROLLER], keepers[node]
    address = next(n.address for n in shape.nodes if n.name == node)
    port = node_port(node)
    return [
        in_network_argv(bridge, [
            "ip", "link", "add", port, "type", "veth",
            "peer", "name", "eth0", "netns", str(own)]),
        in_network_argv(bridge, ["ip", "link", "set", port, "master", BRIDGE, "up"]),
        in_network_argv(own, ["ip", "link", "set", "lo", "up"]),
        in_network_argv(own, ["ip", "address", "add", f"{address}/{PREFIX}", "dev", "eth0"]),
        in_network_argv(own, ["ip", "link", "set", "eth0", "up"]),
    ]  # fmt: skip


OFF = "off"
WAYS = ("both", "send", "receive")
_BURST, _QUEUE = "16kb", "50ms"
#: Towards all other nodes, where only the way to one of them is slow: no limit worth the name.
_REST = "100gbit"


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
