"""Two pretend hosts on this machine, and the link between them: its rate and its delay."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.pretend_hosts import Host, address, ip, name_them, pretend_hosts, switch_of

#: Before a command: the kernel ends it with the bench, also if that is killed.
TIED = ("setpriv", "--pdeathsig", "KILL")
_DELAY_LINE = str(Path(__file__).with_name("delay_line.py"))


class Link(NamedTuple):
    """Of both directions."""

    rate: str  # as tc writes it: 200mbit
    delay_ms: float = 0.0  # one way


class TwoHosts(NamedTuple):
    hosts: list[Host]
    delay_line: psutil.Process | None


@contextmanager
def two_hosts(link: Link) -> Iterator[TwoHosts]:
    """Needs root."""
    shape = ["dev", "data0", "root", "tbf", "rate", link.rate, "burst", "256kb", "latency", "50ms"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(pretend_hosts(folder))
        name_them(folder, hosts, address(1), address(2))
        for host in hosts:
            subprocess.run(["tc", "-n", host[-1], "qdisc", "add", *shape], check=True)
        line = None
        if link.delay_ms:
            switch, ports = switch_of(hosts[0][-1]), ("p1", "p2")
            for port in ports:
                ip("-n", switch, "link", "set", port, "nomaster")
            running = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{switch}", *TIED, sys.executable, _DELAY_LINE,
                 *ports, str(link.delay_ms / 1000)], stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            stack.callback(running.wait)
            stack.callback(running.kill)
            if not running.stdout or not running.stdout.readline():
                raise RuntimeError("the delay line did not start")
            line = psutil.Process(running.pid)
        yield TwoHosts(hosts, line)
