"""What the faults strike: a cluster, a sweep with a watcher of its own user, and what is to be
undone later."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.chaos.cluster import Cluster
from tests.chaos.evidence import Records
from tests.jobs.cell.test_container import sif
from tests.practice import ROOT, USER, Practice

EPOCHS, EPOCH_S = 4, 0.6
AT_ONCE, POLL_S = 12, 3.0  # cells that run at a time; the site's key
#: A login node on which sbatch takes its time, before and after the job is in the queue.
SLOW_SBATCH = """#!/bin/sh
touch {mark}
sleep 1
answer=$({real} "$@")
code=$?
sleep 1
echo "$answer"
exit $code
"""


@dataclass
class Stage:
    folder: Path
    cluster: Cluster
    cells: int
    rng: random.Random
    watcher: subprocess.Popen[bytes] | None = None
    starts: int = 0  # of watchers
    later: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    down: set[str] = field(default_factory=set)  # what a fault holds down: nodes, slurmctld, ...
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        self.records = Records(self.results / "sweep")

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    @property
    def slow_mark(self) -> Path:
        """There as soon as a slow sbatch has begun."""
        return self.folder / "marks" / "sbatch"

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        self.later.append((time.monotonic() + seconds, action))

    def hold_down(
        self, what: str, seconds: float, undo: Callable[[], object] = lambda: None
    ) -> None:
        """For so long; then ``undo`` what a fault did."""

        def back() -> None:
            undo()
            self.down.discard(what)

        self.down.add(what)
        self.after(seconds, back)

    def set_up(self, results_mb: int) -> None:
        """The folders, the fakes, the sweep's and the site's file."""
        for name, mode in (("results", 0o755), ("data", 0o755), ("marks", 0o1777),
                           ("bin", 0o755), ("slow", 0o755), ("watch", 0o755)):  # fmt: skip
            (self.folder / name).mkdir()
            (self.folder / name).chmod(mode)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={results_mb}m,mode=755", "results",
                        str(self.results)], check=True)  # fmt: skip
        for owned in (self.results, self.folder / "data"):
            shutil.chown(owned, USER, USER)
        self.ledger.touch()
        self.ledger.chmod(0o666)
        sif(self.folder / "fake.sif")
        fake = Path(__file__).with_name("fake_rank")
        _program(self.folder / "bin" / "apptainer",
                 f'#!/bin/sh\nexec "{sys.executable}" "{fake}" "$@"\n')  # fmt: skip
        _program(self.folder / "slow" / "sbatch",
                 SLOW_SBATCH.format(mark=self.slow_mark, real=shutil.which("sbatch")))  # fmt: skip
        self._write("site.yaml", self._site())
        self._write("sweep.yaml", {
            "title": "Cells of some seconds", "dataset": "digits", "model": "cnn",
            "epochs": EPOCHS, "batch_per_rank": 64, "technique": "naive", "gpus": 1,
            "matrix": {"seeds": self.cells},
        })  # fmt: skip

    def _site(self) -> dict[str, object]:
        return {
            "partition": "practice", "ranks_per_node": 1, "gpus": "gres", "time_min": 10,
            "signal_s": 5, "mpi": "gloo", "image": str(self.folder / "fake.sif"),
            "array_parallel": AT_ONCE,
            "setup": [f"export PATH={self.folder}/bin:$PATH"],
            "environment": {"CHAOS_LEDGER": str(self.ledger), "CHAOS_EPOCH_S": str(EPOCH_S)},
            "slurm_conf": str(self.cluster.place.slurm_conf), "poll_s": POLL_S,
        }  # fmt: skip

    def _write(self, name: str, content: dict[str, object]) -> None:
        (self.folder / name).write_text(yaml.safe_dump(content, sort_keys=False))

    def watch(self, *, slow: bool = False) -> None:
        """Start `python -m jobs sweep` as its user, as the leader of a process group.

        ``slow``: its sbatch is.
        """
        assert self.watcher is None
        path = "/usr/sbin:/usr/bin:/sbin:/bin"
        argv = ["env", f"PATH={self.folder}/slow:{path}" if slow else f"PATH={path}",
                sys.executable, "-m", "jobs", "sweep", str(self.folder / "sweep.yaml"),
                "--results", str(self.results), "--site", str(self.folder / "site.yaml"),
                "--data", f"{self.folder}/data", "--store", f"{self.folder}/data/store",
                "--no-preflight"]  # fmt: skip
        argv = Practice(self.cluster.place).argv(argv)
        self.starts += 1
        with (self.folder / "watch" / f"{self.starts:03}.log").open("ab") as said:
            self.watcher = subprocess.Popen(
                argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip

    def end_watcher(self, number: signal.Signals) -> int:
        """Send a signal to the watcher and its group, and wait for its end."""
        assert self.watcher is not None
        if self.watcher.poll() is None:
            os.killpg(self.watcher.pid, number)
        return self.forget_watcher(300)

    def forget_watcher(self, patience_s: float = 0) -> int:
        """The code of a watcher that has ended, or does so now."""
        assert self.watcher is not None
        code = self.watcher.wait(patience_s)
        self.watcher = None
        return code

    @property
    def watch_said(self) -> str:
        lines = (self.folder / "watch" / f"{self.starts:03}.log").read_text().splitlines()
        return lines[-1] if lines else ""

    def running_job(self) -> tuple[str, str] | None:
        """One of the sweep's elements that run now, and its node, which is up."""
        if "slurmctld" in self.down:
            return None
        jobs = [job for job in self.cluster.jobs(USER, "running") if job[2] not in self.down]
        return self.rng.choice([(job[0], job[2]) for job in jobs]) if jobs else None


def _program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)
