"""Worlds of ranks that take turns: one trains while all others stand still.

A program that takes turns prints {"step_s": its seconds of a step} as JSON, reads a line with the
number of steps of its turns, takes as many for each further line, prints its answer as one line of
JSON, and ends with its input. Between its turns a world is stopped by a signal, so that Horovod's
threads, which look for messages each millisecond, take no core from the others.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from jobs.cell.launch import core_groups
from tests.bench.hosts import TIED
from tests.bench.suite import Asked
from tests.pretend_hosts import Host, address
from tests.sweeps import ROOT
from train.program.environment import environment_of

Answers = list[dict[str, Any]]  # of each rank
PATIENCE_S = 1800  # no start and no turn takes as long
_FOLDER = Path(__file__).parent
#: What a user's shell has for any program.
_SHELL = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR",
          "TZ", "USER")  # fmt: skip
_RENDEZVOUS = """
import sys
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer
server = RendezvousHTTPServer((sys.argv[1], 0), RendezvousHandler, 0)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


class Place(NamedTuple):
    """Where ranks run, each on cores of its own."""

    size: int
    hosts: Sequence[Host] = ()  # one for each rank; none: all on this machine
    cores: int = 1  # of each rank
    apart: bool = False  # each rank in a world of its own

    def own_cores(self) -> list[str]:
        groups = core_groups(self.size, self.cores, sorted(os.sched_getaffinity(0)))
        return [",".join(map(str, group)) for group in groups]

    def commands(self, program: Sequence[str]) -> list[list[str]]:
        hosts = self.hosts or [[]] * self.size
        return [
            [*host, *TIED, "taskset", "--cpu-list", cores, sys.executable, *program]
            for host, cores in zip(hosts, self.own_cores(), strict=True)
        ]

    def numbers(self, rank: int) -> dict[str, int]:
        """Rank and size, overall, on this host, and of hosts."""
        if self.apart:
            return {name: name.endswith("SIZE") * 1 for name in _NUMBERS}
        on_host = (0, 1, rank, self.size) if self.hosts else (rank, self.size, 0, 1)
        return dict(zip(_NUMBERS, (rank, self.size, *on_host), strict=True))


_NUMBERS = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")


class World:
    """Ranks that stand still, except in their turn."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]], logs: Sequence[Path]) -> None:
        self._processes, self._logs = processes, logs
        self.step_s = max(answer["step_s"] for answer in self._answers())
        self.pause()

    def set_steps(self, seconds: float) -> None:
        """Of each turn, to last so long."""
        self._tell(str(max(5, round(seconds / self.step_s))))

    def turn(self) -> Answers:
        self._signal(signal.SIGCONT)
        self._tell("go")
        found = self._answers()
        self.pause()
        return found

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def close(self) -> None:
        self._signal(signal.SIGCONT)
        for process in self._processes:
            with suppress(BrokenPipeError):
                process.stdin.close()  # type: ignore[union-attr]
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
        kill(self._processes)

    def _tell(self, line: str) -> None:
        for process in self._processes:
            print(line, file=process.stdin, flush=True)

    def _answers(self) -> Answers:
        """One of each rank, as they come: if a rank has died, the others wait for it."""
        found: dict[int, dict[str, Any]] = {}
        while len(found) < len(self._processes):
            waiting = {p.stdout: n for n, p in enumerate(self._processes) if n not in found}
            ready = select.select(waiting, [], [], PATIENCE_S)[0]
            if not ready:
                raise RuntimeError(f"ranks {sorted(waiting.values())} gave no answer in time")
            for stream in ready:
                line = next((line for line in stream if line.startswith("{")), None)
                if line is None:
                    texts = [log.read_text(errors="replace")[-3000:] for log in self._logs]
                    raise RuntimeError("\n".join(["a rank ended without an answer", *texts]))
                found[waiting[stream]] = json.loads(line)
        return [found[rank] for rank in sorted(found)]

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)


def kill(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def suite(
    asked: Asked, place: Place, folder: Path, root: Path = ROOT, **variables: str
) -> Iterator[World]:
    """The suite of the checkout ``root``."""
    names = {"CROSS_RANK": "NODE", "CROSS_SIZE": "NODES"}
    base = environment_of("ranks", os.environ) | {"PYTHONPATH": str(root)} | variables
    environments = []
    commands = place.commands([str(_FOLDER / "suite.py"), json.dumps(asdict(asked))])
    for rank, cores in enumerate(place.own_cores()):
        numbers = {names.get(name, name): n for name, n in place.numbers(rank).items()}
        own = {f"HOROSCALE_{name}": str(n) for name, n in numbers.items()}
        own["HOROSCALE_CORES"] = cores
        if not place.apart:
            own["HOROSCALE_RENDEZVOUS"] = str(folder / "rendezvous")
        environments.append(base | own)
    with _started(commands, environments, folder, root) as world:
        yield world


@contextmanager
def plain(exported: Path, batch: int, place: Place, folder: Path, **more: str) -> Iterator[World]:
    """The script with the variables that `horovodrun --gloo --gloo-timeout-seconds 86400` sets: a
    world that stands still answers nobody."""
    host = address(1) if place.hosts else "127.0.0.1"
    enter = place.hosts[0] if place.hosts else []
    base = {name: os.environ[name] for name in _SHELL if name in os.environ} | {
        "PYTHONUNBUFFERED": "1", "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": "data0" if place.hosts else "lo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": host, "HOROVOD_GLOO_TIMEOUT_SECONDS": "86400",
    } | more  # fmt: skip
    with ExitStack() as stack:
        server = subprocess.Popen(
            [*enter, *TIED, sys.executable, "-c", _RENDEZVOUS, host], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, process_group=0,
        )  # fmt: skip
        stack.callback(kill, [server])
        assert server.stdout
        base["HOROVOD_GLOO_RENDEZVOUS_PORT"] = server.stdout.readline().strip()
        environments = [
            base
            | {"HOROVOD_HOSTNAME": place.hosts[rank][-1] if place.hosts else "localhost"}
            | {f"HOROVOD_{name}": str(n) for name, n in place.numbers(rank).items()}
            for rank in range(place.size)
        ]
        commands = place.commands([str(_FOLDER / "plain.py"), str(exported), str(batch)])
        world = stack.enter_context(_started(commands, environments, folder, folder))
        yield world


@contextmanager
def _started(
    commands: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]], folder: Path,
    at: Path,
) -> Iterator[World]:  # fmt: skip
    logs = [folder / f"rank-{rank}.log" for rank in range(len(commands))]
    processes = []
    for command, environment, log in zip(commands, environments, logs, strict=True):
        with log.open("w") as errors:
            processes.append(
                subprocess.Popen(
                    command, cwd=at, env=environment, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=errors, text=True, process_group=0,
                )
            )  # fmt: skip
    world = None
    try:
        world = World(processes, logs)
        yield world
    finally:
        if world:
            world.close()
        kill(processes)


def export(asked: Asked, folder: Path) -> Path:
    """What the plain script reads, in ``folder``."""
    folder.mkdir()
    subprocess.run(
        [sys.executable, _FOLDER / "suite.py", json.dumps(asdict(asked) | {"export": str(folder)})],
        check=True, cwd=ROOT, capture_output=True, env=environment_of("ranks", os.environ)
        | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return folder
