"""Two hosts on one machine, and ranks on them: network namespaces, each with a name of its own and
a link of a given rate to the other (root; ends with all that it made).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.cell.launch import core_groups
from train.environment import environment_of

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("horoscale-bench-0", "horoscale-bench-1")
ADDRESSES = ("10.213.77.1", "10.213.77.2")


@contextmanager
def two_hosts(rate: str) -> Iterator[None]:
    """``rate``: of the link in both directions, as tc writes it: 200mbit."""
    hosts = "127.0.0.1 localhost\n" + "".join(
        f"{address} {name}\n" for address, name in zip(ADDRESSES, NAMES, strict=True)
    )
    try:
        for name in NAMES:
            _ip("netns", "add", name)
            own = Path("/etc/netns") / name
            own.mkdir(parents=True, exist_ok=True)
            (own / "hosts").write_text(hosts)
        _ip("link", "add", "eth0", "netns", NAMES[0], "type", "veth", "peer", "eth0", "netns",
            NAMES[1])  # fmt: skip
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip("-n", name, "link", "set", link, "up")
            shape = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            run = ["tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape]
            subprocess.run(run, check=True)
        yield
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "delete", name], check=False)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def run_ranks(
    command: Sequence[str], size: int, *, hosts: bool = False, apart: bool = False,
    cores_per_rank: int = 1, timeout_s: float = 1800, **variables: str,
) -> list[Any]:  # fmt: skip
    """Run a Python program as ``size`` ranks; what each printed last, as JSON.

    hosts: each rank on one of :func:`two_hosts`, else all on this machine. apart: at the same time,
    but each in a world of its own.
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
            line = [sys.executable, *command]
            if hosts:
                name = NAMES[rank]
                there = 'hostname "$0"; exec "$@"'
                line = ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", there, name,
                        *line]  # fmt: skip
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
