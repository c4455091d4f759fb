"""Where a practice cluster lives, how its parts are called, and what it is made of on this machine:
addresses, cores and memory of each node."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locks import SetupError

DEFAULT = Path("/run/horoscale-practice")
NODES = ("node1", "node2", "node3", "node4")
CONTROLLER = "controller"
SPACES = (CONTROLLER, *NODES)
BRIDGE = "hsbr0"  # in the controller's network, as are the ends of all links
GPUS = 2  # pretend ones, of each node
CPUS = 2  # of each node, as Slurm is told
CONTROLLER_PORT, NODE_PORT = 16817, 16818


@dataclass(frozen=True)
class Place:
    """One cluster's folder (an own tmpfs, gone with the cluster) and the names that follow."""

    folder: Path = DEFAULT

    @property
    def lock(self) -> Path:
        """Of who changes the cluster: beside the folder, which comes and goes."""
        return self.folder.with_name(f".{self.folder.name}.lock")

    @property
    def slurm_conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def state(self) -> Path:
        return self.folder / "state.json"

    @property
    def hosts(self) -> Path:
        return self.folder / "hosts"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def pids(self) -> Path:
        return self.folder / "pids"

    @property
    def munge(self) -> Path:
        return self.folder / "munge"

    @property
    def munge_socket(self) -> Path:
        return self.munge / "socket"

    @property
    def login_link(self) -> str:
        """Network interface by which the machine itself (the login node) reaches the cluster."""
        if self.folder == DEFAULT:
            return "hslogin"
        return "hs" + hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:8]

    def spool(self, node: str) -> Path:
        return self.folder / node / "spool"

    def temporary(self, node: str) -> Path:
        """What the node sees as /tmp."""
        return self.folder / node / "tmp"

    def pid_file(self, space: str, daemon: str) -> Path:
        """Holds a process id as counted inside the daemon's own space."""
        # munged may write nowhere else
        folder = self.munge / "private" if daemon == "munged" else self.pids
        return folder / f"{daemon if space == CONTROLLER else f'{daemon}-{space}'}.pid"


def place_of(environment: Mapping[str, str]) -> Place:
    """The place that HOROSCALE_PRACTICE names, for a second cluster beside the usual one.

    Raises SetupError where it is not an absolute path of plain signs.
    """
    told = environment.get("HOROSCALE_PRACTICE")
    if not told:
        return Place()
    # a socket's path holds 107 bytes; Slurm's files end a value at blanks and commas
    if not re.fullmatch(r"(/\w[\w.-]*){2,}", told, re.ASCII) or len(told) > 60:
        raise SetupError(
            f"HOROSCALE_PRACTICE={told!r} found, expected an absolute path of letters, digits and "
            "/ . _ -, at most 60 signs, for this cluster alone, such as /run/horoscale-other"
        )
    return Place(Path(told))


MEMORY_SHARE = 0.8  # of the machine's memory is given to the nodes together
LEAST_MEMORY_MB = 2048  # per node: two small ranks; advertised, not reserved


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


def free_subnet(routes: str) -> str:
    """The first of our subnets that no route or address of this machine names; ``routes``: as
    ``ip route`` prints them.

    Raises SetupError where there is none.
    """
    for third in range(1, 255):
        if f"10.87.{third}." not in routes:
            return f"10.87.{third}.0/24"
    raise SetupError("this machine has routes into all of 10.87.0.0/16: take one away (ip route)")


def shape_of(subnet: str, cores: Sequence[int], memory_mb: int) -> Shape:
    """Divide the machine among the nodes; ``memory_mb`` is all that it has."""
    network = ipaddress.ip_network(subnet)
    each = max(int(memory_mb * MEMORY_SHARE) // len(NODES), LEAST_MEMORY_MB)
    nodes = tuple(
        Node(name, str(network[11 + number]), cores_of(number, cores), each)
        for number, name in enumerate(NODES)
    )
    return Shape(subnet, str(network[1]), str(network[2]), nodes)
