"""Pretend hosts on a switch: network namespaces, each with the interface data0 on a bridge."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from train.program.environment import environment_of

ROOT = Path(__file__).resolve().parents[1]
#: Command that runs something on a host; its last word is the host's name.
Host = list[str]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=240)


def address(number: int) -> str:
    return f"10.99.7.{number}"


@contextlib.contextmanager
def pretend_hosts(folder: Path, count: int = 2) -> Iterator[list[Host]]:
    """Hosts 1, 2, ... with addresses 10.99.7.1, ... and fd99::1, ..., names of their own, and
    ``folder``/hosts as /etc/hosts. Port N of the switch is pN of the namespace NAME-switch."""
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    names = [f"hs{os.getpid()}{chr(ord('a') + number)}" for number in range(count)]
    switch = switch_of(names[0])
    try:
        try:
            _connect(switch, names)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {error}")
        (folder / "hosts").touch()
        inside = (
            f'mount --bind "{folder / "hosts"}" /etc/hosts && hostname "$1" && shift && exec "$@"'
        )
        yield [
            ["nsenter", f"--net=/run/netns/{name}", "unshare", "--uts", "--mount", "sh", "-c",
             inside, "sh", name]
            for name in names
        ]  # fmt: skip
    finally:
        for name in (switch, *names):
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                ip("netns", "del", name)


def _connect(switch: str, names: Sequence[str]) -> None:
    for name in (switch, *names):
        ip("netns", "add", name)
    ip("-n", switch, "link", "add", "br0", "type", "bridge")
    ip("-n", switch, "link", "set", "br0", "up")
    for number, name in enumerate(names, 1):
        port = f"p{number}"
        ip("link", "add", "data0", "netns", name, "type", "veth", "peer", port, "netns", switch)
        ip("-n", switch, "link", "set", port, "master", "br0", "up")
        ip("-n", name, "address", "add", f"{address(number)}/24", "dev", "data0")
        ip("-n", name, "address", "add", f"fd99::{number}/64", "dev", "data0", "nodad")
        ip("-n", name, "link", "set", "data0", "up")
        ip("-n", name, "link", "set", "lo", "up")


def switch_of(first: str) -> str:
    return f"{first}-switch"


def name_them(folder: Path, hosts: Sequence[Host], *addresses: str) -> None:
    lines = [f"{one} {host[-1]}" for one, host in zip(addresses, hosts, strict=True)]
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))


def start_ranks(
    hosts: Sequence[Host], meeting: Path, *words: str, **more: str
) -> list[subprocess.Popen[str]]:
    """One rank on each host, as a supervisor elsewhere starts it: ``python WORDS``."""
    cores = sorted(os.sched_getaffinity(0))
    return [
        subprocess.Popen(
            [*enter, sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env=environment_of("ranks", os.environ) | _rank(rank, len(hosts)) | {
                "HOROSCALE_CORES": str(cores[rank % len(cores)]),
                "HOROSCALE_RENDEZVOUS": str(meeting),
            } | more,
        )
        for rank, enter in enumerate(hosts)
    ]  # fmt: skip


def _rank(rank: int, size: int) -> Mapping[str, str]:
    return {
        "HOROSCALE_RANK": str(rank), "HOROSCALE_SIZE": str(size), "HOROSCALE_LOCAL_RANK": "0",
        "HOROSCALE_LOCAL_SIZE": "1", "HOROSCALE_NODE": str(rank), "HOROSCALE_NODES": str(size),
    }  # fmt: skip


def ended(running: Sequence[subprocess.Popen[str]], limit_s: float) -> list[tuple[int, str, str]]:
    """Exit code, output and error output of each. One that does not end leaves its stacks."""
    try:
        said = [process.communicate(timeout=limit_s) for process in running]
    except subprocess.TimeoutExpired:
        for process in running:
            process.send_signal(signal.SIGABRT)  # PYTHONFAULTHANDLER: it writes what it does
        stacks = [process.communicate(timeout=30)[1][-3000:] for process in running]
        raise AssertionError("\n".join([f"no end in {limit_s:.0f} s", *stacks])) from None
    finally:
        for process in running:
            process.kill()
    return [(p.returncode, *texts) for p, texts in zip(running, said, strict=True)]
