"""Scripted ranks: small programs in place of `python -m train`, real processes that behave badly.

For tests of what the supervisor and the engine do with processes, not of training. A script plays
every rank of every cell; it finds the names of ``PRELUDE`` ready.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jobs.cell.launch import CellTask, core_groups
from jobs.config.load import load_sweep
from tests.builders import config, record
from tests.sweeps import ROOT
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
    who = dict(host=os.uname().nodename, pid=os.getpid())
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


@dataclass(frozen=True)
class Stage:
    """Where scripted ranks play: their program, and one cell or a sweep of them."""

    folder: Path
    python: str

    def expect(self, configs: Sequence[RunConfig]) -> None:
        """Give ranks the good record that :func:`good` leaves for each of these cells."""
        (self.folder / "good").mkdir(exist_ok=True)
        for one in configs:
            text = record(one).model_dump_json()
            (self.folder / "good" / f"{one.cell_id()}.json").write_text(text)


def stage(folder: Path, body: str) -> Stage:
    """``python`` of the result plays ``body`` for `-m train`; all else is the real Python."""
    folder.mkdir(parents=True, exist_ok=True)
    play, shim = folder / "play.py", folder / "python"
    play.write_text(PRELUDE.format(stage=str(folder)) + body)
    real = shlex.quote(sys.executable)
    shim.write_text(
        f"""#!/bin/sh
case "$1 $2" in
"-m train") exec {real} -I -S {shlex.quote(str(play))} "$@" ;;
"-m train.data") echo '{{"train_images": 1437}}' ;;
*) exec {real} "$@" ;;
esac
"""
    )
    shim.chmod(0o755)
    return Stage(folder, str(shim))


@dataclass(frozen=True)
class Play:
    """One cell that scripted ranks play, under a supervisor."""

    task: CellTask
    config: RunConfig

    @property
    def cell(self) -> Path:
        return Path(self.task.cell)

    def told(self) -> dict[str, object]:
        return asdict(self.task)

    @contextmanager
    def supervisor(self) -> Iterator[subprocess.Popen[str]]:
        """A supervisor in a process of its own, and none of its ranks left afterwards."""
        code = "import json, sys; from jobs.local.supervisor import run_cell; "
        code += "print(run_cell(json.loads(sys.argv[1])))"
        process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(self.told())], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def play(folder: Path, body: str, *, ranks: int = 2, name: str = "", **changes: object) -> Play:
    """A cell with its config written, for the scripted ranks of ``body``."""
    scene = stage(folder / "stage", body)
    one = config(gpus=ranks)
    scene.expect([one])
    cell = folder / "results" / name / one.cell_id()
    cell.mkdir(parents=True, exist_ok=True)
    (cell / "config.json").write_text(one.model_dump_json())
    values: dict[str, object] = {
        "cell": str(cell), "data": "", "store": "", "python": scene.python,
        "cores": core_groups(ranks, 1, sorted(os.sched_getaffinity(0))),
        "resume": False, "stall_s": 60.0, "limit_s": None, "visible_gpus": None,
    }  # fmt: skip
    return Play(CellTask(**(values | changes)), one)  # type: ignore[arg-type]


def alive(cell: Path) -> list[int]:
    """Processes that carry the environment of a rank of this cell, helpers of ranks included."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(f"HOROSCALE_RENDEZVOUS={cell}/") in text:
            found.append(int(folder.name))
    return found


SWEEP = """
title: scripted ranks
dataset: digits
model: cnn
epochs: 2
batch_per_rank: 64
matrix:
  gpus: {gpus}
  technique: [naive]
  seed: {seeds}
"""


@dataclass(frozen=True)
class Front:
    """`python -m jobs sweep` as a user starts it, whose ranks are scripted."""

    folder: Path
    stage: Stage

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def sweep(self) -> Path:
        return self.results / "trial"

    def cells(self) -> list[Path]:
        return sorted(path.parent for path in self.sweep.glob("*/config.json"))

    def argv(self, *options: str, command: str = "sweep") -> list[str]:
        code = (
            f"import runpy, sys; sys.executable = {self.stage.python!r}; "
            "runpy.run_module('jobs', run_name='__main__', alter_sys=True)"
        )
        where = ["--results", str(self.results), "--data", str(self.folder / "data")]
        where += ["--store", str(self.folder / "data"), "--site", "local"]
        file = str(self.folder / "trial.yaml")
        return [sys.executable, "-c", code, command, file, *where, *options]

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*options), capture_output=True, text=True, cwd=ROOT, timeout=240, check=False
        )

    @contextmanager
    def start(self, *options: str, **popen: Any) -> Iterator[subprocess.Popen[str]]:
        """The front-end in a session of its own, as in a terminal; nothing of it is left after."""
        values: dict[str, Any] = {
            "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT,
            "start_new_session": True,
        }  # fmt: skip
        process = subprocess.Popen(self.argv(*options), **(values | popen))
        try:
            yield process
        finally:
            for pid in [process.pid, *family(self.folder)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.communicate()


def front(folder: Path, body: str, *, gpus: str = "[1]", seeds: str = "[0]") -> Front:
    scene = stage(folder / "stage", body)
    file = folder / "trial.yaml"
    file.write_text(SWEEP.format(gpus=gpus, seeds=seeds))
    scene.expect(load_sweep(str(file)).configs)
    return Front(folder, scene)


def family(folder: Path) -> list[int]:
    """Processes of front-ends, submitit and supervisors for results under ``folder``."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (one / "cmdline").read_bytes()
            if os.fsencode(folder) in line and int(one.name) != os.getpid():
                found.append(int(one.name))
    return found
