"""Ranks meet by Gloo without MPI: rank 0 serves the rendezvous and publishes its address.

Horovod 0.28.1 meets over the interface that is named, then makes the connections for the data over
the address of the host's name (the context of a process set is made without the interface). A name
that stands for nothing ends the process in native code, without a Python exception; one that
stands for loopback leaves ranks of several nodes unable to connect.
"""

from __future__ import annotations

import ipaddress
import json
import resource
import socket
import threading
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

from train.distributed.interfaces import (
    NAME,
    Interface,
    addresses_of,
    network_here,
    own_interface,
    this_host,
)
from train.distributed.launch import Launch
from train.errors import ConfigError, WorldError
from train.record.atomic import write_atomically

PATIENCE_S = 600.0
#: Open files of a rank besides Gloo's sockets: 60 were seen.
OTHER_FILES = 120
_FIX = (
    "Have the name stand for the address of the network between the nodes (DNS or /etc/hosts of "
    "each node), or let ranks meet by PMIx (mpi: pmix in the site's file)"
)


class RendezvousError(RuntimeError):
    """The ranks could not meet."""


class MeetingPoint(NamedTuple):
    """What rank 0 publishes."""

    host: str  # its IPv4 address
    port: int
    data: str | None  # address at which Gloo sends (data_address)
    network: str


def meet(
    launch: Launch, environment: MutableMapping[str, str], patience_s: float = PATIENCE_S
) -> None:
    """Make the environment ready for ``hvd.init()`` under Gloo; serves on rank 0.

    Both CONTROLLER and CPU_OPERATIONS must be gloo: with the first alone, a build with MPI calls
    MPI and aborts. The server is plain HTTP that anyone who can reach it may write to, so it
    listens on the one interface that the ranks use.

    Raises:
        ConfigError: no such interface, Horovod would not send its data over it, rank 0's address is
            this node's, too, or the nodes hold unequal numbers of ranks.
        RendezvousError: rank 0 published no address within ``patience_s`` seconds.
        WorldError: a process may not open as many files as Gloo needs.
    """
    allow_files(launch.size)
    if launch.size != launch.nodes * launch.local_size:
        raise ConfigError(
            f"found {launch.size} ranks on {launch.nodes} nodes, {launch.local_size} of them on "
            f"{socket.gethostname()}; over Gloo each node must hold equally many: start as many "
            "on each (srun --ntasks-per-node)"
        )
    interface = own_interface(environment, nodes=launch.nodes)
    if launch.rank == 0:
        host = interface.address
        meeting = MeetingPoint(host, _serve(host), data_address(), network_here())
        if launch.rendezvous:  # a world of one may have none
            write_atomically(launch.rendezvous, json.dumps(meeting))
    else:
        assert launch.rendezvous is not None
        meeting, here = _wait_for(launch.rendezvous, patience_s), this_host()
        for address in (meeting.host, meeting.data) if meeting.network != network_here() else ():
            if address and (name := here.holder(address)):
                raise ConfigError(shared_address(address, name, here.name, "rank 0's node"))
    data = data_interface(interface, launch.nodes, environment)
    environment.update(
        HOROVOD_CONTROLLER="gloo",
        HOROVOD_CPU_OPERATIONS="gloo",
        HOROVOD_GLOO_RENDEZVOUS_ADDR=meeting.host,
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(meeting.port),
        HOROVOD_GLOO_IFACE=data,
        HOROVOD_HOSTNAME=socket.gethostname(),
        HOROVOD_RANK=str(launch.rank),
        HOROVOD_SIZE=str(launch.size),
        HOROVOD_LOCAL_RANK=str(launch.local_rank),
        HOROVOD_LOCAL_SIZE=str(launch.local_size),
        HOROVOD_CROSS_RANK=str(launch.node),
        HOROVOD_CROSS_SIZE=str(launch.nodes),
    )


def allow_files(size: int) -> None:
    """Raise this process's limit of open files, if need be: Gloo opens two sockets to each other
    rank of ``size``, and a rank that may not ends in native code. Rank 0 answers all others at the
    rendezvous, too."""
    needed = 3 * (size - 1) + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:  # of open files, Linux has no infinity
        if hard < needed:
            raise WorldError(
                f"{size} ranks over Gloo open {needed:,} files each, the hard limit is {hard:,}: "
                "raise it (ulimit -Hn, LimitNOFILE of slurmd), or let ranks meet by PMIx (mpi: "
                "pmix in the site's file), which needs fewer"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def shared_address(address: str, interface: str, *hosts: str) -> str:
    """What an address means that several nodes hold."""
    return (
        f"{address} ({interface}) is an address of {' and of '.join(hosts)}, so that it leads from "
        "none to another: of a bridge to containers or virtual machines, or one that a service "
        f"shares. Name the interface between the nodes as `interface` of the site file. {_FIX}"
    )


def _serve(host: str) -> int:
    from horovod.runner.http.http_server import (  # noqa: PLC0415  (rank side only)
        RendezvousHandler,
        RendezvousHTTPServer,
    )

    server = RendezvousHTTPServer((host, 0), RendezvousHandler, 0)
    threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
    return int(server.server_address[1])


def _wait_for(file: Path, patience_s: float) -> MeetingPoint:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            return MeetingPoint(*json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            time.sleep(0.05)
    raise RendezvousError(
        f"rank 0 published no address in {file} within {patience_s:.0f} s: see rank 0's log"
    )


def address_of(name: str) -> str | None:
    """The address that Gloo would take for a name: the first one that is this host's own."""
    host, addresses = this_host(), addresses_of(name)
    own = (a for a in addresses if a.startswith("127.") or host.holder(a.partition("%")[0]))
    return next(own, None)


def data_address() -> str | None:
    """At which other hosts reach Gloo here; None if the host's name stands for loopback or for a
    link-local address, which ranks refuse."""
    address = address_of(socket.gethostname())
    return None if address is None or _is_inner(address) else address


def _is_inner(address: str) -> bool:
    known = ipaddress.ip_address(address)
    # a link-local one of IPv6 holds with the number of an interface, which hosts count differently
    return known.is_loopback or (known.version == 6 and known.is_link_local)


def data_interface(interface: Interface, nodes: int, environment: Mapping[str, str]) -> str:
    """The name of what Horovod sends its data over, for a rank that is to use ``interface``."""
    host = this_host()
    address = address_of(host.name)
    if address is None:
        raise ConfigError(
            f"the name of this host, {host.name}, stands for no address of its own, so that "
            f"Horovod would crash. Add a line to /etc/hosts ({interface.address} {host.name})"
        )
    if nodes == 1:
        return interface.name
    said = f"the name of this host, {host.name}, stands for {address}, where Horovod sends its data"
    if _is_inner(address):
        raise ConfigError(f"{said}: ranks of other nodes could not reach it. {_FIX}")
    if address in host.interfaces.get(interface.name, ()):
        return interface.name
    if name := environment.get(NAME):
        raise ConfigError(f"{said}, not over {name} ({interface.address}) as asked. {_FIX}")
    return host.holder(address) or interface.name
