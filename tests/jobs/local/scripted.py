"""Scripted ranks: small programs in place of `python -m train`, real processes that behave badly.

For tests of what a sweep does with processes, not of training. A script plays every rank of every
cell; it finds the names of ``PRELUDE`` ready.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from jobs.cell.state import CellState, checked, stand
from jobs.cell.stop import Stop
from jobs.config.load import load_sweep
from jobs.display import Display
from jobs.local.supervisor import Machine
from jobs.local.sweep import run_cells
from tests.builders import record
from tests.sweeps import UNTRAINED, Bench, executable, make_bench
from train.config.run import RunConfig

#: standard library only, so that a rank starts in 30 ms
PRELUDE = """
import datetime, json, os, signal, subprocess, sys, time
from pathlib import Path
CELL = Path(sys.argv[3]).parent
RANK, SIZE = int(os.environ["HOROSCALE_RANK"]), int(os.environ["HOROSCALE_SIZE"])
ATTEMPT = int(sys.argv[sys.argv.index("--attempt") + 1])
RESUME = "--resume" in sys.argv
STAGE = Path({stage!r})

def beat(phase="training", idle_s=0.0):
    who = dict(host=os.uname().nodename, pid=os.getpid(), beat_s=0.1)
    told = json.dumps(dict(phase=phase, idle_s=idle_s, **who))
    try:
        (CELL / "logs" / f"rank-{{RANK}}.beat").write_text(told)
    except OSError:
        pass  # as the watchdog of a real rank

def fail(what, consequence=False, code=1):
    at = datetime.datetime.now(datetime.timezone.utc).isoformat()
    error = dict(what=what, where=f"rank {{RANK}}", what_to_do="look", rank=RANK, log_tail=[])
    told = dict(at=at, consequence=consequence, error=error)
    (CELL / "logs" / f"rank-{{RANK}}.error.json").write_text(json.dumps(told))
    sys.stdout.flush()
    os._exit(code)

def good():
    if RANK == 0:
        file = CELL / ".good.tmp"
        file.write_text((STAGE / "good" / f"{{CELL.name}}.json").read_text())
        file.rename(CELL / "record.json")

def epoch(number):
    if RANK == 0:
        line = json.loads((STAGE / "good" / f"{{CELL.name}}.json").read_text())["epochs"][0]
        with open(CELL / "epochs.jsonl", "a") as out:
            out.write(json.dumps(dict(line, epoch=number, attempt=ATTEMPT)) + "\\n")

def mark(name):
    (CELL / f"mark-{{name}}-{{RANK}}").write_text(str(os.getpid()))

def live(seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        beat()
        if os.getppid() != int(os.environ["HOROSCALE_SUPERVISOR"]):
            os._exit(75)
        time.sleep(0.05)
"""
GOOD = "beat()\nepoch(1)\ngood()\n"
LONG = "beat()\nepoch(1)\nmark('in')\nlive()\n"


def stage(folder: Path, body: str, configs: Sequence[RunConfig]) -> Path:
    """Make the folder in which scripted ranks play these cells. Its ``python`` plays their program
    for `-m train`, and is the real Python for all else; ``good`` has what :func:`good` leaves."""
    (folder / "good").mkdir(parents=True)
    for one in configs:
        (folder / "good" / f"{one.cell_id()}.json").write_text(record(one).model_dump_json())
    play = folder / "play.py"
    play.write_text(PRELUDE.format(stage=str(folder)) + body)
    real = shlex.quote(sys.executable)
    executable(
        folder / "python",
        f"""#!/bin/sh
case "$1 $2" in
"-m train") exec {real} -I -S {shlex.quote(str(play))} "$@" ;;
"-m train.data") echo '{{"train_images": 1437, "form": "digits-0"}}' ;;
*) exec {real} "$@" ;;
esac
""",
    )
    return folder


class Seen(Display):
    """A display that remembers."""

    def __init__(self) -> None:
        super().__init__([])
        self.events: list[tuple[str, ...]] = []
        self.said: list[str] = []
        self.on_tick: Callable[[], object] = lambda: None

    def started(self, cell: CellState) -> None:
        self.events.append(("started", cell.folder.name))

    def say(self, text: str) -> None:
        self.said.append(text)
        super().say(text)

    def tick(self) -> None:
        self.on_tick()

    def ended(self, cell: CellState, status: str, why: str) -> None:
        self.events.append(("ended", cell.folder.name, status))


@dataclass
class Trial:
    """Cells of a sweep that scripted ranks play, in this process."""

    stage: Path
    folder: Path
    configs: list[RunConfig]
    display: Seen = field(default_factory=Seen)
    stop: Stop = field(default_factory=Stop)

    @property
    def cells(self) -> list[Path]:
        return [self.folder / one.cell_id() for one in self.configs]

    @property
    def cell(self) -> Path:
        return self.cells[0]

    def run(self, *, force: bool = False, **changes: Any) -> list[str]:
        """Statuses, in the order of the configs. ``changes``: of the machine."""
        return self.attend(self.look(force=force), **changes)

    def look(self, *, force: bool = False) -> list[CellState]:
        found = [stand(*both) for both in zip(self.configs, self.cells, strict=True)]
        return checked(found, force=force)

    def attend(self, cells: Sequence[CellState], **changes: Any) -> list[str]:
        values: dict[str, Any] = {
            "cores": (0, 1), "per_rank": 1, "data": Path("data"), "store": Path("store"),
            "stall_s": 60.0, "at_once": 1,
        }  # fmt: skip
        earlier = len(self.display.events)
        run_cells(cells, Machine(**(values | changes)), self.display, self.stop)
        ends = dict(event[1:] for event in self.display.events[earlier:] if event[0] == "ended")
        return [ends.get(one.cell_id(), "not run") for one in self.configs]


@dataclass(frozen=True)
class Front(Bench):
    """`python -m jobs sweep` as a user starts it, whose ranks are scripted."""

    stage: Path

    @property
    def program(self) -> list[str]:
        code = (
            f"import runpy, sys; sys.executable = {str(self.stage / 'python')!r}; "
            "runpy.run_module('jobs', run_name='__main__', alter_sys=True)"
        )
        return [sys.executable, "-c", code]

    @contextmanager
    def start(self, *options: str, **popen: Any) -> Iterator[subprocess.Popen[str]]:
        """The front-end in a session of its own, as in a terminal; nothing of it is left after."""
        process = super().start(*options, **popen)
        try:
            yield process
        finally:
            for pid in [process.pid, *family(self.folder)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.communicate()


def front(folder: Path, body: str, *, gpus: str = "[1]", seeds: str = "[0]") -> Front:
    bench = make_bench(folder, folder / "data", UNTRAINED.format(gpus=gpus, seeds=seeds))
    scene = stage(folder / "stage", body, load_sweep(str(folder / "trial.yaml")).configs)
    return Front(bench.folder, bench.data, bench.name, scene)


def family(folder: Path) -> list[int]:
    """Processes of front-ends for results under ``folder``, and of their ranks."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in " ".join(process.info["cmdline"] or ()) and process.pid != os.getpid()
    ]
