"""All series of one run, in a world that is about to be opened."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

import horovod.tensorflow as hvd

from train.distributed.interfaces import Interface, machine
from train.distributed.launch import Launch
from train.distributed.machine.claims import Claims
from train.distributed.machine.libraries import mpi_versions
from train.distributed.machine.quota import quotas_here
from train.distributed.world import own_gpus, share_cores
from train.interconnect.collectives.measure import Budget, Measured, series
from train.interconnect.collectives.operations import Maker, What, raw_maker
from train.interconnect.collectives.payload import sizes
from train.interconnect.collectives.plan import fewer, ladder, plan
from train.interconnect.collectives.record import (
    UNTIMED,
    Carried,
    Collectives,
    Rank,
    Series,
    must_send,
)
from train.interconnect.collectives.sockets import Mesh, connect
from train.interconnect.collectives.through_horovod import horovod_maker
from train.interconnect.measure.evidence import Watch

_SETTINGS = (
    "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS", "HOROVOD_CYCLE_TIME",
    "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CACHE_CAPACITY", "HOROVOD_GLOO_IFACE",
    "OMPI_MCA_btl_tcp_if_include", "NCCL_SOCKET_IFNAME",
)  # fmt: skip


def run(
    interface: Interface, largest: int, budget: Budget, launch: Launch, claims: Claims[int],
    keep: Callable[[Collectives], None],
) -> Collectives:  # fmt: skip
    """Open the world of ``launch`` and measure; every rank must call it.

    keep: called by rank 0 after each series with the record so far. A series that fails ends it:
    ranks that left it at different places are no longer in step.

    Raises:
        OSError: a connection to another rank broke.
    """
    began, started = datetime.now(timezone.utc), time.monotonic()
    # every rank must be told of all sets, also of those that it is not in
    chosen = {ranks: hvd.ProcessSet(list(range(ranks))) for ranks in fewer(launch.size)}
    hvd.init(process_sets=list(chosen.values()))
    _, gpus = own_gpus(hvd.local_rank(), hvd.local_size(), 1)
    sets: dict[int, Any] = {**chosen, hvd.size(): hvd.global_process_set}
    mesh = _join(interface)
    makers: dict[str, Maker] = {"raw": raw_maker(mesh), "horovod": horovod_maker(sets)}
    ranks, planned, all_sizes = _ranks(interface), list(plan(hvd.size())), sizes(largest)
    found: list[Series] = []
    so_far = Collectives(
        started_at=began,
        seconds=0.0,
        ranks=ranks,
        nodes=launch.nodes,
        controller="mpi" if hvd.mpi_enabled() else "gloo",
        oversubscribed=any(hvd.allgather_object(claims.shared() or gpus.shared()))
        or share_cores(
            hvd.allgather_object(machine()),
            [r.cores for r in ranks],
            hvd.allgather_object(quotas_here()),
        ),
        stack=_stack(),
        planned=len(planned),
        series=(),
    )
    for what in planned:
        if hvd.rank() == 0:
            print(f"{what.way} {what.operation}, {what.place} of place, {what.mode}, "
                  f"{what.ranks} ranks", flush=True)  # fmt: skip
        chosen_sizes = ladder(what.operation, all_sizes)
        found.append(_series(mesh, makers[what.way], what, chosen_sizes, budget, interface))
        told = {"seconds": time.monotonic() - started, "series": tuple(found)}
        so_far = so_far.model_copy(update=told)
        if hvd.rank() == 0:
            keep(so_far)
        if found[-1].error:
            break
    mesh.close()
    return so_far


def _join(interface: Interface) -> Mesh:
    with socket.create_server((interface.address, 0), backlog=hvd.size()) as listener:
        told = hvd.allgather_object((interface.address, listener.getsockname()[1]))
        token: bytes = hvd.broadcast_object(secrets.token_bytes(16), 0)
        return connect(hvd.rank(), listener, told, token)


def _series(
    mesh: Mesh,
    make: Maker,
    what: What,
    chosen_sizes: Sequence[int],
    budget: Budget,
    interface: Interface,
) -> Series:
    measured, error = Measured(()), None
    with Watch(interface.name) as watch:
        try:
            if mesh.rank < what.ranks:
                measured = series(mesh, make, what, chosen_sizes, budget)
        except Exception as failed:  # noqa: BLE001  (Horovod's errors are of many types)
            error = (str(failed).strip().splitlines() or [type(failed).__name__])[0]
            print(f"rank {mesh.rank}: {what}: {failed}", file=sys.stderr)
    counted, ports = watch.counted, watch.ports
    own = Carried(
        host=socket.gethostname(),
        interface=interface.name,  # nodes may name the same network differently
        received_bytes=counted.received if counted else None,
        sent_bytes=counted.sent if counted else None,
        port_sent_bytes=ports.sent if ports else None,
    )
    told: list[tuple[Carried, str | None]] = hvd.allgather_object((own, error))
    payload = sum(
        must_send(what.operation, what.ranks, point.bytes) * (point.calls + UNTIMED)
        for point in measured.points
    )
    return Series(
        **what._asdict(),
        points=measured.points,
        carried=tuple(carried for carried, _ in told[: what.ranks]),
        payload_bytes=round(payload),
        cut=measured.cut,
        error=next((text for _, text in told if text), None),
    )


def _ranks(interface: Interface) -> tuple[Rank, ...]:
    own = Rank(
        host=socket.gethostname(), interface=interface.name, address=interface.address,
        cores=tuple(sorted(os.sched_getaffinity(0))),
    )  # fmt: skip
    return tuple(hvd.allgather_object(own))


def _stack() -> dict[str, str]:
    built = [name for name in ("mpi", "gloo", "nccl", "cuda") if getattr(hvd, f"{name}_built")()]
    packages = {name: version(name) for name in ("horovod", "numpy")}
    settings = {name: os.environ[name] for name in _SETTINGS if name in os.environ}
    return packages | mpi_versions() | {"horovod built with": " ".join(built)} | settings
