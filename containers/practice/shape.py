"""What the cluster is made of on this machine: addresses, cores and memory of each node."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .place import CONTROLLER, CPUS, NODES, PracticeError

MEMORY_SHARE = 0.8  # of the machine's memory is given to the nodes together
LEAST_MEMORY_MB = 2048  # per node: two small ranks; advertised, not reserved
SUBNETS = tuple(f"10.87.{third}.0/24" for third in range(1, 255))


@dataclass(frozen=True)
class Node:
    name: str
    address: str
    cores: tuple[int, ...]  # of the machine, to which all of the node's processes are bound
    memory_mb: int


@dataclass(frozen=True)
class Shape:
    subnet: str
    controller: str  # address of the controller
    login: str  # address of the machine itself
    nodes: tuple[Node, ...]
    accounting: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def shape_from_json(told: dict[str, Any]) -> Shape:
    nodes = tuple(Node(**{**node, "cores": tuple(node["cores"])}) for node in told["nodes"])
    return Shape(**{**told, "nodes": nodes})


def cores_of(number: int, cores: Sequence[int]) -> tuple[int, ...]:
    """Cores of the node of this number (from 0): an own group, or one core that is shared.

    Ranks size their threads by the cores that they may use: on a small machine every node gets one.
    """
    own = len(cores) // len(NODES)
    if own < CPUS:
        return (cores[number % len(cores)],)
    return tuple(cores[number * own : (number + 1) * own])


def free_subnet(taken: Iterable[str]) -> str:
    """The first of our subnets that overlaps nothing which this machine has a route or address for.

    Raises:
        PracticeError: none is free.
    """
    known = [ipaddress.ip_network(text, strict=False) for text in taken]
    for candidate in SUBNETS:
        network = ipaddress.ip_network(candidate)
        if not any(network.overlaps(other) for other in known if other.version == network.version):
            return candidate
    raise PracticeError(
        f"no free subnet found among {SUBNETS[0]} to {SUBNETS[-1]}: this machine has routes into "
        "all of them. Take one away (ip route)."
    )


def shape_of(
    subnet: str, cores: Sequence[int], memory_mb: int, *, accounting: bool = False
) -> Shape:
    """Divide the machine among the nodes; ``memory_mb`` is all that it has."""
    network = ipaddress.ip_network(subnet)
    each = max(int(memory_mb * MEMORY_SHARE) // len(NODES), LEAST_MEMORY_MB)
    nodes = tuple(
        Node(name, str(network[11 + number]), cores_of(number, cores), each)
        for number, name in enumerate(NODES)
    )
    return Shape(subnet, str(network[1]), str(network[2]), nodes, accounting)


def addresses(shape: Shape) -> dict[str, str]:
    return {CONTROLLER: shape.controller, **{node.name: node.address for node in shape.nodes}}
