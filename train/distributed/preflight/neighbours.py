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
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from train.distributed.interfaces import Interface, mtu_of, network_here
from train.distributed.preflight.paths import REFUSED, Broken, Echo, probe
from train.distributed.rendezvous import address_of, shared_address
from train.record.atomic import write_atomically

#: More nodes than this try the paths to the next ones only.
ALL_PATHS = 16
_NEXT = 8
_POLL_S = 0.1


@dataclass(frozen=True)
class Neighbour:
    """What a node writes. name: in Slurm. host: its host name, data: the address that this stands
    for, at which Gloo sends."""

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


class Trouble(NamedTuple):
    """hosts: whose. what: name of the check."""

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
        interface.address, address_of(host), mtu_of(interface.name), echo.port,
    )  # fmt: skip
    _write(folder / f"node-{node}.json", asdict(own))
    nodes = _nodes(folder, count, patience_s)
    broken = [way for way in _try_paths(own, nodes) if not _has_left(folder, way)]
    _write(folder / f"paths-{node}.json", [[way.receiver, *way.broken] for way in broken])
    return _seen(folder, nodes, count, patience_s)


def _has_left(folder: Path, way: Way) -> bool:
    """A node that did not wait for this one refuses a connection, without any firewall."""
    return way.broken.why == REFUSED and (folder / f"paths-{way.receiver}.json").exists()


def look_on(folder: Path, count: int, patience_s: float) -> Seen:
    """What the nodes find, for a process that tries nothing itself."""
    return _seen(folder, _nodes(folder, count, patience_s), count, 2 * patience_s)


def _nodes(folder: Path, count: int, patience_s: float) -> tuple[Neighbour, ...]:
    found = _gathered(folder, "node-*.json", count, patience_s)
    return tuple(Neighbour(**found[node]) for node in sorted(found))


def _seen(folder: Path, nodes: tuple[Neighbour, ...], count: int, patience_s: float) -> Seen:
    found = _gathered(folder, "paths-*.json", count, patience_s)
    paths = (
        Way(node, receiver, Broken(*broken))
        for node in sorted(found)
        for receiver, *broken in found[node]
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


def _try_paths(own: Neighbour, nodes: Sequence[Neighbour]) -> list[Way]:
    others = [n for n in nodes if n.network != own.network and n.address != own.address]
    if len(others) >= ALL_PATHS:
        others = sorted(others, key=lambda n: (n.node - own.node) % (len(nodes) + 1))[:_NEXT]
    if not others:
        return []

    def tried(other: Neighbour) -> Broken | None:
        return probe(own.address, other.address, other.port, own.mtu)

    with ThreadPoolExecutor(len(others)) as threads:
        found = zip(others, threads.map(tried, others), strict=True)
        return [Way(own.node, other.node, broken) for other, broken in found if broken]


def troubles(seen: Seen, *, by_gloo: bool) -> tuple[Trouble, ...]:
    """What keeps ranks of these nodes from talking. by_gloo: they use the addresses and names that
    the nodes wrote, which under MPI they may not."""
    found = [*_shared(seen.nodes, by_gloo=by_gloo), *_paths(seen)]
    if by_gloo:
        found += [*_equal_names(seen.nodes), *_families(seen.nodes)]
    return tuple(found)


def _shared(nodes: Sequence[Neighbour], *, by_gloo: bool) -> list[Trouble]:
    held: dict[str, list[Neighbour]] = {}
    for node in nodes:
        for address in {node.address, *([node.data] if by_gloo and node.data else [])}:
            held.setdefault(address, []).append(node)
    return [
        Trouble(
            "shared address", hosts := tuple(dict.fromkeys(node.name for node in own)),
            shared_address(address, own[0].interface, *hosts), "an address of each node's own",
            "name the interface between the nodes as `interface` of the site file",
        )
        for address, own in sorted(held.items())
        if len({node.network for node in own}) > 1
    ]  # fmt: skip


def _paths(seen: Seen) -> list[Trouble]:
    nodes = {node.node: node for node in seen.nodes}
    by_cause: dict[tuple[str, bool], list[Way]] = {}
    for path in seen.paths:
        if path.sender in nodes and path.receiver in nodes:
            cause = path.broken.why, path.broken.lost is not None
            by_cause.setdefault(cause, []).append(path)
    found = []
    for (why, is_mtu), paths in by_cause.items():
        ends = [(nodes[path.sender], nodes[path.receiver]) for path in paths]
        shown = ", ".join(f"{a.name} -> {b.name}" for a, b in ends[:3])
        more = f" and {len(ends) - 3} more" if len(ends) > 3 else ""
        own = {n.name: n for pair in ends for n in pair}
        mtus = ", ".join(f"{name} {n.interface} {n.mtu}" for name, n in sorted(own.items())[:4])
        found.append(
            Trouble(
                "MTU" if is_mtu else "path", tuple(sorted(own)),
                f"{shown}{more}: {why}" + (f" (MTU: {mtus})" if is_mtu else ""),
                "packets as large as the interfaces send" if is_mtu else "connections to any port",
                "set the MTU of the nodes' interfaces to what the switches between them pass, or "
                "the switches' to theirs" if is_mtu else
                "let the nodes reach each other at any TCP port (firewall), or name another "
                "interface as `interface` of the site file",
            )
        )  # fmt: skip
    return found


def _equal_names(nodes: Sequence[Neighbour]) -> list[Trouble]:
    return _pairs(
        nodes, lambda a, b: a.host == b.host, "host name",
        lambda a, b: f"nodes {a.node} and {b.node} ({a.name}, {b.name}) are both called {a.host}",
        "a name of each node's own, by which Horovod tells them apart",
        "give each node a host name of its own",
    )  # fmt: skip


def _families(nodes: Sequence[Neighbour]) -> list[Trouble]:
    def differ(a: Neighbour, b: Neighbour) -> bool:
        return bool(a.data and b.data) and (":" in str(a.data)) != (":" in str(b.data))

    return _pairs(
        nodes, differ, "address family",
        lambda a, b: f"the host name {a.host} stands for {a.data}, {b.host} for {b.data}",
        "names of all nodes that stand for IPv4 addresses, or all for IPv6",
        "make DNS or /etc/hosts of each node alike",
    )  # fmt: skip


def _pairs(
    nodes: Sequence[Neighbour],
    bad: Callable[[Neighbour, Neighbour], bool],
    what: str,
    words: Callable[[Neighbour, Neighbour], str],
    expected: str,
    fix: str,
) -> list[Trouble]:
    """The first pair alone: it shows what is wrong."""
    for a, b in combinations(nodes, 2):
        if a.network != b.network and bad(a, b):
            return [Trouble(what, (a.name, b.name), words(a, b), expected, fix)]
    return []
