"""Ranks meet by Gloo without MPI: rank 0 serves the rendezvous and publishes its address."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import MutableMapping
from pathlib import Path

from train.files import write_atomically
from train.launch import Launch


class RendezvousError(RuntimeError):
    """The ranks could not meet."""


def meet(launch: Launch, environment: MutableMapping[str, str], patience_s: float = 600.0) -> None:
    """Make the environment ready for ``hvd.init()`` under Gloo; serves on rank 0.

    Both CONTROLLER and CPU_OPERATIONS must say gloo: with the first alone, a build with MPI calls
    MPI and aborts. One node here, so everything stays on the loopback interface: the server is
    plain HTTP that anyone who can reach it may write to.

    Raises:
        RendezvousError: rank 0 published no address within ``patience_s`` seconds.
    """
    assert launch.rendezvous is not None
    if launch.rank == 0:
        address = _serve("127.0.0.1")
        write_atomically(launch.rendezvous, address)
    else:
        address = _wait_for(launch.rendezvous, patience_s)
    host, port = address.rsplit(":", 1)
    environment.update(
        HOROVOD_CONTROLLER="gloo",
        HOROVOD_CPU_OPERATIONS="gloo",
        HOROVOD_GLOO_RENDEZVOUS_ADDR=host,
        HOROVOD_GLOO_RENDEZVOUS_PORT=port,
        HOROVOD_GLOO_IFACE="lo",
        # a rank that is later than this aborts without a Python exception
        HOROVOD_GLOO_TIMEOUT_SECONDS=str(int(patience_s)),
        HOROVOD_HOSTNAME=socket.gethostname(),
        HOROVOD_RANK=str(launch.rank),
        HOROVOD_SIZE=str(launch.size),
        HOROVOD_LOCAL_RANK=str(launch.local_rank),
        HOROVOD_LOCAL_SIZE=str(launch.local_size),
        HOROVOD_CROSS_RANK="0",
        HOROVOD_CROSS_SIZE="1",
    )


def _serve(host: str) -> str:
    from horovod.runner.http.http_server import (  # noqa: PLC0415  (rank side only)
        RendezvousHandler,
        RendezvousHTTPServer,
    )

    server = RendezvousHTTPServer((host, 0), RendezvousHandler, 0)
    threading.Thread(target=server.serve_forever, name="rendezvous", daemon=True).start()
    return f"{host}:{server.server_address[1]}"


def _wait_for(file: Path, patience_s: float) -> str:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            return file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            time.sleep(0.05)
    raise RendezvousError(
        f"rank 0 published no address in {file} within {patience_s:.0f} s: see rank 0's log"
    )
