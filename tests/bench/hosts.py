"""Ranks of a Python program on this machine, or on two pretend hosts with a slow link."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.cell.launch import core_groups
from tests.pretend_hosts import Host, address, ended, name_them, pretend_hosts, start_ranks
from tests.sweeps import ROOT, ranks_here


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
        if hosts:
            meeting, variables["PYTHONPATH"] = Path(folder) / "rendezvous", str(ROOT)
            running = start_ranks(hosts, meeting, *command, **variables)
        else:
            worlds = [cores[rank : rank + 1] for rank in range(size)] if apart else [cores]
            running = []
            for number, world in enumerate(worlds):
                running += ranks_here(Path(folder) / str(number), command, world, **variables)
        found = ended(running, timeout_s)
    if bad := [errors[-3000:] for code, _, errors in found if code]:
        raise RuntimeError(f"ranks of {' '.join(command)} failed: {bad}")
    return [json.loads(out.splitlines()[-1]) for _, out, _ in found]
