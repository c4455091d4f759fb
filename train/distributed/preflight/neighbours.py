"""The nodes of a job look at each other before they depend on it: who holds which address, and
what passes between them.

They meet in a folder that all see, so that a network that lets nobody meet can be named. Every node
writes who it is, tries the paths to others, and writes what is broken; all come to the same result.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from train.distributed.interfaces import Interface, network_here
from train.distributed.preflight.paths import Broken, Echo, probe
from train.distributed.rendezvous import data_address, shared_address
from train.record.atomic import write_atomically

#: To as many others a node tries the path: with more nodes, to the next ones.
_MOST = 15
_POLL_S = 0.25


@dataclass(frozen=True)
class Neighbour:
    """What a node writes. name: in Slurm. host: its host name. data: the address that this stands
    for, at which Gloo sends; None where ranks will refuse it."""

    node: int
    name: str
    host: str
    network: str
    interface: str
    address: str
    data: str | None
    mtu: int
    port: int


class Way(NamedTuple):
    sender: int
    receiver: int
    broken: Broken


class Seen(NamedTuple):
    nodes: tuple[Neighbour, ...]
    paths: tuple[Way, ...]  # broken ones


class NodeProblem(NamedTuple):
    """what: name of the check. hosts: whose."""

    what: str
    hosts: tuple[str, ...]
    found: str
    expected: str
    fix: str


def meeting_folder(folder: Path, environment: Mapping[str, str]) -> Path:
    """Of this start of this job: nobody reads what an earlier one left."""
    names = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID")
    return folder / "-".join(["neighbours", *(environment.get(name) or "0" for name in names)])


def look_around(
    folder: Path, interface: Interface, node: int, count: int, patience_s: float
) -> Seen:
    """As one process of node number ``node`` of ``count``; others of it use :func:`look_on`.

    Args:
        patience_s: how long to wait for the others, twice. Who does not come is left out.

    Raises:
        OSError: the folder cannot be written, or the interface's address not be listened on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    host, echo = socket.gethostname(), Echo(interface.address)
    own = Neighbour(
        node, os.environ.get("SLURMD_NODENAME") or host, host, network_here(), interface.name,
        interface.address, data_address(), psutil.net_if_stats()[interface.name].mtu, echo.port,
    )  # fmt: skip
    _write(folder / f"node-{node}.json", asdict(own))
    nodes = _nodes(folder, count, patience_s)
    broken = [(way.receiver, way.broken) for way in _try_paths(own, nodes, count)]
    _write(folder / f"paths-{node}.json", {"seen": [n.node for n in nodes], "broken": broken})
    return _seen(folder, nodes, patience_s)


def look_on(folder: Path, count: int, patience_s: float) -> Seen:
    """What the nodes find, for a process that tries nothing itself."""
    return _seen(folder, _nodes(folder, count, patience_s), 2 * patience_s)


def _nodes(folder: Path, count: int, patience_s: float) -> tuple[Neighbour, ...]:
    found = _gathered(folder, "node-*.json", count, patience_s)
    return tuple(Neighbour(**found[node]) for node in sorted(found))


def _seen(folder: Path, nodes: tuple[Neighbour, ...], patience_s: float) -> Seen:
    found = _gathered(folder, "paths-*.json", len(nodes), patience_s)
    paths = (
        Way(node, receiver, Broken(*broken))
        for node in sorted(found)
        for receiver, broken in found[node]["broken"]
        # a node that did not wait for this one may have ended, or be busy with something else
        if receiver not in found or node in found[receiver]["seen"]
    )
    return Seen(nodes, tuple(paths))


def _gathered(folder: Path, pattern: str, count: int, patience_s: float) -> dict[int, Any]:
    deadline = time.monotonic() + patience_s
    found: dict[int, Any] = {}
    while True:
        with contextlib.suppress(FileNotFoundError):
            os.scandir(folder).close()  # makes NFS look again
        for file in folder.glob(pattern):
            node = int(file.stem.partition("-")[2])
            if node not in found:
                with contextlib.suppress(OSError, ValueError):
                    found[node] = json.loads(file.read_text(encoding="utf-8"))
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(_POLL_S)


def _write(file: Path, value: object) -> None:
    write_atomically(file, json.dumps(value) + "\n")


def _try_paths(own: Neighbour, nodes: Sequence[Neighbour], count: int) -> list[Way]:
    others = [n for n in nodes if n.network != own.network and n.address != own.address]
    others = sorted(others, key=lambda n: (n.node - own.node) % count)[:_MOST]

    def tried(other: Neighbour) -> Broken | None:
        return probe(own.address, other.address, other.port, own.mtu)

    with ThreadPoolExecutor(_MOST) as threads:
        found = zip(others, threads.map(tried, others), strict=True)
        return [Way(own.node, other.node, broken) for other, broken in found if broken]


def troubles(seen: Seen, *, by_gloo: bool) -> tuple[NodeProblem, ...]:
    """What keeps ranks of these nodes from talking. by_gloo: they use the names that the nodes
    wrote and what these stand for, which under MPI they may not."""
    found = []
    for address, own in _held(seen.nodes, lambda n: {n.address, n.data if by_gloo else None}):
        hosts = tuple(dict.fromkeys(node.name for node in own))
        where = own[0].interface if address == own[0].address else "of the host name"
        found.append(
            NodeProblem(
                "shared address", hosts, shared_address(address, where, *hosts),
                "an address of each node's own",
                "name the interface between the nodes as `interface` of the site file",
            )
        )  # fmt: skip
    for host, own in _held(seen.nodes, lambda n: {n.host if by_gloo else None}):
        hosts = tuple(node.name for node in own)
        numbers = ", ".join(str(node.node) for node in own)
        found.append(
            NodeProblem(
                "host name", hosts, f"nodes {numbers} ({', '.join(hosts)}) are all called {host}",
                "a name of each node's own, by which Horovod tells them apart",
                "give each node a host name of its own",
            )
        )  # fmt: skip
    return (*found, *_broken(seen))


def _held(
    nodes: Sequence[Neighbour], of: Callable[[Neighbour], set[str | None]]
) -> list[tuple[str, list[Neighbour]]]:
    """What several nodes have; pretended ones of one network may."""
    held: dict[str, list[Neighbour]] = {}
    for node in nodes:
        for value in filter(None, of(node)):
            held.setdefault(value, []).append(node)
    return [(v, own) for v, own in sorted(held.items()) if len({n.network for n in own}) > 1]


def _broken(seen: Seen) -> list[NodeProblem]:
    """One of each cause."""
    nodes = {node.node: node for node in seen.nodes}
    by_cause: dict[Broken, list[tuple[Neighbour, Neighbour]]] = {}
    for sender, receiver, broken in seen.paths:
        if sender in nodes and receiver in nodes:
            by_cause.setdefault(broken, []).append((nodes[sender], nodes[receiver]))
    found = []
    for (why, is_mtu), ends in by_cause.items():
        own = {node.name: node for pair in ends for node in pair}
        shown = ", ".join(f"{a.name} -> {b.name}" for a, b in ends[:3])
        more = f" and {len(ends) - 3} more" if len(ends) > 3 else ""
        what, expected, fix = (
            "path", "connections to any port", "let the nodes reach each other at any TCP port "
            "(firewall), or name another interface as `interface` of the site file",
        )  # fmt: skip
        if is_mtu:
            mtus = ", ".join(f"{name} {n.interface} {n.mtu}" for name, n in sorted(own.items())[:4])
            more = f"{more}, MTU {mtus}"
            what, expected, fix = (
                "MTU", "packets as large as the interfaces send", "set the MTU of the nodes' "
                "interfaces to what the switches between them pass, or the switches' to theirs",
            )  # fmt: skip
        found.append(NodeProblem(what, tuple(sorted(own)), f"{shown}{more}: {why}", expected, fix))
    return found
