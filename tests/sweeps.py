"""Drive `python -m jobs sweep` as a user's shell does; what tests that start programs share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from jobs.cell.launch import RENDEZVOUS, Groups, rank_environment
from train.program.environment import environment_of
from train.record.run import RunRecord, read_record

ROOT = Path(__file__).resolve().parent.parent
#: Cells whose ranks are scripted, or never run.
UNTRAINED = """
title: cells that nobody trains
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
class Bench:
    """A sweep file, a results folder and the data that all tests share."""

    folder: Path
    data: Path
    name: str

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def sweep(self) -> Path:
        return self.results / self.name

    @property
    def program(self) -> list[str]:
        return [sys.executable, "-m", "jobs"]

    def argv(self, *options: str, command: str = "sweep") -> list[str]:
        file = str(self.folder / f"{self.name}.yaml")
        where = ["--results", str(self.results), "--data", str(self.data)]
        where += ["--store", str(self.data / "prepared"), "--site", "local"]
        return [*self.program, command, file, *where, *options]

    def run(self, *options: str, timeout_s: float = 1100) -> subprocess.CompletedProcess[str]:
        return ran(self.argv(*options), cwd=ROOT, timeout=timeout_s)

    def start(self, *options: str, **popen: Any) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | popen
        return subprocess.Popen(
            self.argv(*options), text=True, cwd=ROOT, start_new_session=True, **pipes
        )

    def cells(self) -> list[Path]:
        return sorted(path.parent for path in self.sweep.glob("*/config.json"))

    def records(self) -> list[RunRecord]:
        return [read_record(cell / "record.json") for cell in self.cells()]


def ran(
    argv: Sequence[str | Path], *, text: bool = True, **how: Any
) -> subprocess.CompletedProcess[Any]:
    """How a program ended, and all that it said."""
    return subprocess.run(argv, capture_output=True, text=text, check=False, **how)


def ranks_here(
    folder: Path, command: Sequence[str | Path], cores: Groups, **variables: str
) -> list[subprocess.Popen[str]]:
    """A Python command as real ranks of one world on these cores, as the supervisor starts them."""
    (folder / "logs").mkdir(parents=True)
    base = environment_of("ranks", os.environ) | {"PYTHONFAULTHANDLER": "1"} | variables
    return [
        subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=base | rank_environment(
                folder, cores, rank, attempt=1, supervisor=os.getpid(), root=ROOT
            ),
        )
        for rank in range(len(cores))
    ]  # fmt: skip


def executable(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def copy_checkout(to: Path) -> Path:
    """What set-up and images are made by, in a checkout of its own."""
    ignored = shutil.ignore_patterns("images", "__pycache__")
    for part in ("containers", "train"):
        shutil.copytree(ROOT / part, to / part, ignore=ignored)
    return to


def make_bench(folder: Path, data: Path, text: str, name: str = "trial") -> Bench:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(text)
    return Bench(folder, data, name)


def wait_until(ready: Callable[[], object], what: str, timeout_s: float = 240) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain for: {what}"
        time.sleep(0.1)


def rank_processes(folder: Path) -> list[psutil.Process]:
    """Those with the environment of a rank of a cell, ``folder`` or below it; helpers included."""
    return [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(RENDEZVOUS, "").startswith(f"{folder}/")
    ]


def rank_process(cell: Path, rank: int) -> psutil.Process:
    """That of this rank, which has started."""
    ranks = {int(p.info["environ"]["HOROSCALE_RANK"]): p for p in rank_processes(cell)[::-1]}
    return ranks[rank]


def lines(file: Path) -> int:
    try:
        return len(file.read_text().splitlines())
    except FileNotFoundError:  # not there yet, or taken away by a new start
        return 0
