"""A real sweep on the practice cluster, for tests that disturb it: started, watched, looked at."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from jobs.config.load import load_sweep
from jobs.config.site import Site
from jobs.slurm.arrays import arrays_of
from tests.practice import Practice
from tests.sweeps import ROOT
from train.record.run import RunRecord, read_record

#: Without a container ranks start sooner; what the container does to them is tested apart.
BARE: Mapping[str, Any] = {
    "partition": "practice", "ranks_per_node": 1, "gpus": "gres", "time_min": 20, "signal_s": 20,
    "mpi": "gloo", "interface": "eth0", "image": "none", "scratch": "/tmp", "poll_s": 2,
}  # fmt: skip
#: As jobs/sites/practice.yaml has it: nodes that share cores.
YIELDING = {"OMPI_MCA_mpi_yield_when_idle": "1"}
CONTAINED = {**BARE, "mpi": "pmix", "image": "cpu", "environment": YIELDING}
LONG: Mapping[str, Any] = {
    "title": "One cell of some seconds", "dataset": "digits", "model": "cnn", "epochs": 100,
    "batch_per_rank": 64, "technique": "naive", "gpus": 2,
}  # fmt: skip


def three(*epochs: int) -> dict[str, Any]:
    """One array of three cells with so many epochs each: an element alone has the id that stands
    for all, which hides much. The last is the element whose SLURM_JOB_ID is the array's: seeds are
    such that this order is drawn."""
    seeds = range(3)
    while True:
        sweep: dict[str, Any] = {
            "title": "Three cells in one array", "dataset": "digits", "model": "cnn",
            "batch_per_rank": 64, "technique": "naive", "gpus": 1,
            "zip": [{"seed": list(seeds), "epochs": list(epochs)}],
        }  # fmt: skip
        with TemporaryDirectory() as folder:
            (Path(folder) / "three.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False))
            configs = load_sweep("three", Path(folder)).configs
        (array,) = arrays_of(configs, Site(ranks_per_node=1))
        if list(array.cells) == [config.cell_id() for config in configs]:
            return sweep
        seeds = range(seeds.stop, seeds.stop + 3)


@dataclass
class Sweeping:
    """One sweep in a folder of its own, run by `python -m jobs` as root, as a trainer would."""

    practice: Practice
    folder: Path
    site: Mapping[str, Any] = field(default_factory=lambda: BARE)
    sweep: Mapping[str, Any] = field(default_factory=lambda: LONG)
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    fault: str = ""  # that it meets, and since when
    began: float = 0.0

    def write(self, **site: Any) -> None:
        cluster = {"slurm_conf": str(self.practice.place.slurm_conf), "user": "practice"}
        text = yaml.safe_dump({**self.site, **cluster, **site}, sort_keys=False)
        (self.folder / "site.yaml").write_text(text)
        (self.folder / "long.yaml").write_text(yaml.safe_dump(dict(self.sweep), sort_keys=False))

    def start(self, *options: str, command: str = "sweep") -> subprocess.Popen[str]:
        if not (self.folder / "site.yaml").exists():
            self.write()
        argv = [sys.executable, "-m", "jobs", command, str(self.folder / "long.yaml")]
        argv += ["--results", str(self.results)]
        argv += ["--site", str(self.folder / "site.yaml")] if command == "sweep" else []
        environment = {**os.environ, "HOROSCALE_PRACTICE": str(self.practice.place.folder)}
        process = subprocess.Popen(
            [*argv, *options], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        out, _ = process.communicate(timeout=1500)
        return process.returncode, out

    def succeeds(self, process: subprocess.Popen[str]) -> None:
        code, out = self.end(process)
        assert code == 0, out + self.said()

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def cell(self) -> Path:
        return next(self.results.glob("long/digits-*"))

    @property
    def cells(self) -> list[Path]:
        """By their seeds, those that are laid out."""
        found = []
        for file in self.results.glob("long/digits-*/config.json"):
            with suppress(ValueError):  # half written
                found.append((json.loads(file.read_text())["seed"], file.parent))
        return [cell for _, cell in sorted(found)]

    def records(self) -> list[RunRecord]:
        return [read_record(cell / "record.json") for cell in self.cells]

    def epochs(self, cell: Path | None = None) -> int:
        try:
            return len(((cell or self.cell) / "epochs.jsonl").read_text().splitlines())
        except (StopIteration, OSError):
            return 0

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        """Until something is true, while the sweep goes on."""
        deadline = time.monotonic() + 900
        while not true():
            assert time.monotonic() < deadline, f"{what}; {self.said()}"
            assert self.started[-1].poll() is None, self.started[-1].communicate()[0]
            time.sleep(0.2)

    def disturbed(
        self, fault: str, *options: str, epochs: int = 3, preflight: bool = False
    ) -> Sweeping:
        """Start the sweep; return when its cell has done some epochs, which then meets a fault."""
        self.start(*([] if preflight else ["--no-preflight"]), *options)
        self.wait_until(lambda: self.epochs() >= epochs, f"not {epochs} epochs")
        self.fault, self.began = fault, time.monotonic()
        return self

    def ends(self, code: int, status: str) -> RunRecord:
        """The sweep that met a fault ends so; prints a row of the fault table."""
        exit_code, out = self.end(self.started[-1])
        record, took = self.record(), time.monotonic() - self.began
        print(f"\nFAULT | {self.fault} | {' -> '.join(statuses(record))} | {took:.0f} s")
        assert (exit_code, record.status) == (code, status), out + self.said()
        return record

    def said(self) -> str:
        """The ends of all logs, for a failing test."""
        logs = [*self.results.glob("long/.submitit/*/*.out"), *self.results.glob("long/*/logs/*")]
        return "\n".join(f"== {p}\n{p.read_text(errors='replace')[-800:]}" for p in logs
                         if p.suffix in (".out", ".log"))  # fmt: skip

    def record(self) -> RunRecord:
        return read_record(self.cell / "record.json")

    def job(self) -> str:
        note = max(self.results.glob("long/.slurm/*.json"))
        return str(json.loads(note.read_text())["arrays"][0]["job_id"])

    def node_of(self, rank: int, cell: Path | None = None) -> str:
        started = json.loads(((cell or self.cell) / "logs" / "start.json").read_text())
        return str(started["world"]["hostnames"][rank])


@contextmanager
def in_folder(practice: Practice, folder: Path, **more: Any) -> Iterator[Sweeping]:
    """A sweep under a folder that all nodes see; the cluster is healed before it and after it."""
    practice.heal()
    results = folder / "results"
    results.mkdir(exist_ok=True)
    shutil.chown(results, "practice", "practice")
    made = Sweeping(practice, folder, **more)
    try:
        yield made
    finally:
        for process in made.started:
            if process.poll() is None:
                process.kill()
                process.communicate()
        practice.heal()


def statuses(record: RunRecord) -> Sequence[str]:
    return [attempt.status for attempt in record.attempts]
