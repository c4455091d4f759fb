"""The cluster's network as lists of commands: one bridge, one link per node and for the login."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

from .place import BRIDGE, CONTROLLER, Place
from .shape import Shape
from .spaces import in_network_argv

MTU = 1500
LOGIN_PORT = "hslogin"  # the bridge's end of the login's link
PREFIX = 24


def node_port(node: str) -> str:
    """The bridge's end of a node's link: hsn1 for node1. The node's own end is its eth0."""
    return f"hsn{node.removeprefix('node')}"


def controller_commands(place: Place, shape: Shape, keeper: int) -> list[list[str]]:
    """The bridge, which has the controller's address, and the login's link to it."""
    inside = [
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", BRIDGE, "mtu", str(MTU), "type", "bridge"],
        ["ip", "address", "add", f"{shape.controller}/{PREFIX}", "dev", BRIDGE],
        ["ip", "link", "set", BRIDGE, "up"],
        ["ip", "link", "set", LOGIN_PORT, "master", BRIDGE, "up"],
    ]
    link = place.login_link
    return [
        ["ip", "link", "add", link, "mtu", str(MTU), "type", "veth",
         "peer", "name", LOGIN_PORT, "mtu", str(MTU), "netns", str(keeper)],
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
            "ip", "link", "add", port, "mtu", str(MTU), "type", "veth",
            "peer", "name", "eth0", "mtu", str(MTU), "netns", str(own)]),
        in_network_argv(bridge, ["ip", "link", "set", port, "master", BRIDGE, "up"]),
        in_network_argv(own, ["ip", "link", "set", "lo", "up"]),
        in_network_argv(own, ["ip", "address", "add", f"{address}/{PREFIX}", "dev", "eth0"]),
        in_network_argv(own, ["ip", "link", "set", "eth0", "up"]),
    ]  # fmt: skip


def taken_subnets() -> list[str]:
    """Every IPv4 network that this machine has a route for, its own addresses among them."""
    command = ["ip", "-json", "-4", "route", "show", "table", "all"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return subnets_of(out)


def subnets_of(routes: str) -> list[str]:
    """Destinations in the JSON text of ``ip route``, the default route left out."""
    found = [str(route.get("dst", "default")) for route in json.loads(routes or "[]")]
    return [subnet for subnet in found if subnet[:1].isdigit() and subnet != "0.0.0.0/0"]
