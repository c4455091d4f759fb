"""Ranks of a Python program on this machine, or on two pretend hosts with a slow link."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.cell.launch import core_groups
from tests.pretend_hosts import Host, address, name_them, pretend_hosts
from train.environment import environment_of

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def two_hosts(rate: str) -> Iterator[list[Host]]:
    """``rate``: of the link in both directions, as tc writes it: 200mbit. Needs root."""
    shape = ["dev", "data0", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
    with tempfile.TemporaryDirectory() as folder, pretend_hosts(Path(folder)) as hosts:
        name_them(Path(folder), hosts, address(1), address(2))
        for host in hosts:
            subprocess.run(["tc", "-n", host[-1], "qdisc", "add", *shape], check=True)
        yield hosts


def run_ranks(
    command: Sequence[str], size: int, *, hosts: Sequence[Host] = (), apart: bool = False,
    cores_per_rank: int = 1, timeout_s: float = 1800, **variables: str,
) -> list[Any]:  # fmt: skip
    """Run a Python program as ``size`` ranks; what each printed last, as JSON.

    hosts: each rank on one of these, else all on this machine. apart: at the same time, but each
    in a world of its own.
    """
    cores = core_groups(size, cores_per_rank, sorted(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for rank in range(size):
            nodes = size if hosts else 1
            world = 1 if apart else size
            own = environment_of("ranks", os.environ) | variables | {
                "HOROSCALE_RANK": str(rank % world),
                "HOROSCALE_SIZE": str(world),
                "HOROSCALE_LOCAL_RANK": str(0 if hosts else rank % world),
                "HOROSCALE_LOCAL_SIZE": str(world // nodes),
                "HOROSCALE_NODE": str(rank if hosts else 0),
                "HOROSCALE_NODES": str(nodes),
                "HOROSCALE_CORES": ",".join(map(str, cores[rank])),
                "HOROSCALE_RENDEZVOUS": f"{folder}/rendezvous-{rank if apart else 0}",
                "PYTHONPATH": str(ROOT),
            }  # fmt: skip
            line = [*(hosts[rank] if hosts else []), sys.executable, *command]
            running.append(
                subprocess.Popen(line, env=own, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            )
        try:
            outs = [process.communicate(timeout=timeout_s)[0] for process in running]
        finally:
            for process in running:
                process.kill()
    if bad := [process.returncode for process in running if process.returncode]:
        raise RuntimeError(f"ranks of {' '.join(command)} ended with {bad}")
    return [json.loads(out.splitlines()[-1]) for out in outs]
