"""Ranks meet by Gloo without MPI: rank 0 serves the rendezvous and publishes its address."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from train.config import ConfigError
from train.files import write_atomically
from train.hostname import address_of, data_interface, horovod_is_cured
from train.interfaces import (
    LOOPBACK,
    NAME,
    Interface,
    interfaces_here,
    named,
    own_interface,
    towards,
)
from train.launch import Launch

PATIENCE_S = 600.0


class RendezvousError(RuntimeError):
    """The ranks could not meet."""


def meet(
    launch: Launch, environment: MutableMapping[str, str], patience_s: float = PATIENCE_S
) -> Interface:
    """Make the environment ready for ``hvd.init()`` under Gloo; serves on rank 0.

    Both CONTROLLER and CPU_OPERATIONS must say gloo: with the first alone, a build with MPI calls
    MPI and aborts. The server is plain HTTP that anyone who can reach it may write to, so it
    listens on the one interface that the ranks use: loopback as long as one node is enough.

    Raises:
        ConfigError: there is no such interface, Horovod would not send its data over it, or the
            nodes hold unequal numbers of ranks.
        RendezvousError: rank 0 published no address within ``patience_s`` seconds.
    """
    assert launch.rendezvous is not None
    if launch.size != launch.nodes * launch.local_size:
        raise ConfigError(
            f"found {launch.size} ranks on {launch.nodes} nodes, {launch.local_size} of them on "
            f"{socket.gethostname()}; over Gloo each node must hold equally many: start as many "
            "on each (srun --ntasks-per-node)"
        )
    if launch.rank == 0:
        interface = own_interface(environment, nodes=launch.nodes)
        address = _serve(interface.address)
        write_atomically(launch.rendezvous, f"{address} {interface.name}")
    else:
        address, name = _wait_for(launch.rendezvous, patience_s)
        interface = towards(address.rsplit(":", 1)[0], name, environment)
    interface = _checked(interface, launch.nodes, environment)
    host, port = address.rsplit(":", 1)
    environment.update(
        HOROVOD_CONTROLLER="gloo",
        HOROVOD_CPU_OPERATIONS="gloo",
        HOROVOD_GLOO_RENDEZVOUS_ADDR=host,
        HOROVOD_GLOO_RENDEZVOUS_PORT=port,
        HOROVOD_GLOO_IFACE=interface.name,
        HOROVOD_HOSTNAME=socket.gethostname(),
        HOROVOD_RANK=str(launch.rank),
        HOROVOD_SIZE=str(launch.size),
        HOROVOD_LOCAL_RANK=str(launch.local_rank),
        HOROVOD_LOCAL_SIZE=str(launch.local_size),
        HOROVOD_CROSS_RANK=str(launch.node),
        HOROVOD_CROSS_SIZE=str(launch.nodes),
    )
    return interface


def meet_nobody(environment: MutableMapping[str, str]) -> None:
    """A world of one: Gloo needs no peer, but an address of its own all the same.

    Raises:
        ConfigError: there is none.
    """
    interface = _checked(Interface(LOOPBACK, "127.0.0.1"), 1, {})
    environment.update(
        HOROVOD_CONTROLLER="gloo",
        HOROVOD_CPU_OPERATIONS="gloo",
        HOROVOD_GLOO_IFACE=interface.name,
    )


def _checked(interface: Interface, nodes: int, environment: Mapping[str, str]) -> Interface:
    if horovod_is_cured():
        return interface
    host = socket.gethostname()
    return data_interface(
        interface, nodes=nodes, environment=environment, host=host, address=address_of(host)
    )


def check_named(environment: MutableMapping[str, str]) -> None:
    """Under MPI, too, a site's interface must be there: Open MPI's own words on it are a riddle.

    Raises:
        ConfigError: it is not.
    """
    if name := environment.get(NAME):
        named(name, interfaces_here(), socket.gethostname())


def _serve(host: str) -> str:
    from horovod.runner.http.http_server import (  # noqa: PLC0415  (rank side only)
        RendezvousHandler,
        RendezvousHTTPServer,
    )

    server = RendezvousHTTPServer((host, 0), RendezvousHandler, 0)
    threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
    return f"{host}:{server.server_address[1]}"


def _wait_for(file: Path, patience_s: float) -> tuple[str, str]:
    """Address and interface of rank 0."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            address, name = file.read_text(encoding="utf-8").split()
            return address, name
        except FileNotFoundError:
            time.sleep(0.05)
    raise RendezvousError(
        f"rank 0 published no address in {file} within {patience_s:.0f} s: see rank 0's log"
    )
