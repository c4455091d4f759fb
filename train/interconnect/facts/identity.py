"""Who a node is, and whether it knows it."""

from __future__ import annotations

import ipaddress
import platform
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from train.interconnect.facts.probe import Answer, fact, read
from train.interconnect.facts.record import Fact


def identity(environment: Mapping[str, str], root: Path = Path("/")) -> Iterator[Fact]:
    host = socket.gethostname()
    slurm = environment.get("SLURMD_NODENAME")
    yield fact("identity", "host name", Answer(host), "own")
    yield fact("identity", "name in Slurm",
               Answer(slurm, None if slurm else "SLURMD_NODENAME is not set"), "own")  # fmt: skip
    yield fact("identity", "name resolves to", resolved(host), "own")
    yield fact("identity", "name is its address's", Answer(agrees(host)))
    yield fact("identity", "machine id", read(root / "etc/machine-id"), "own")
    yield fact("identity", "operating system", _system(root))
    yield fact("identity", "kernel", Answer(platform.release()))


def resolved(host: str) -> Answer:
    try:
        return Answer(" ".join(sorted(socket.gethostbyname_ex(host)[2])))
    except OSError as error:
        return Answer(None, f"{host} does not resolve: {error}")


def agrees(host: str) -> str:
    """Forward and back: yes, or what is wrong with it."""
    addresses = (resolved(host).text or "").split()
    if not addresses:
        return "does not resolve"
    if any(ipaddress.ip_address(a).is_loopback for a in addresses):
        return "loopback: peers that are told this address talk to themselves"
    try:
        back = socket.gethostbyaddr(addresses[0])
    except OSError:
        return "yes, but nothing leads back from the address"
    names = {name.partition(".")[0] for name in (back[0], *back[1])}
    return "yes" if host.partition(".")[0] in names else "leads back to another name"


def _system(root: Path) -> Answer:
    told = read(root / "etc/os-release")
    for line in (told.text or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return Answer(line.partition("=")[2].strip('"'))
    return Answer(None, told.why or "os-release has no PRETTY_NAME")
