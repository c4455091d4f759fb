"""`python -m jobs` in this process, on a login node whose Slurm is fake."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

from typer.testing import CliRunner, Result

from jobs.__main__ import app
from jobs.slurm.submissions import RunNote, job_name, read_notes, write_note
from tests.jobs.slurm.fakes import fake_slurm
from tests.sweeps import ROOT, UNTRAINED

SITE = """
partition: practice
ranks_per_node: 2
time_min: 5
image: none
"""


class Desk:
    """A user's shell."""

    def __init__(self, folder: Path, data: Path, site: str = SITE, *, cells: int = 3):
        self.folder, self.data, self.results = folder, data, folder / "results"
        self.fake = fake_slurm(folder / "bin")
        (folder / "site.yaml").write_text(site)
        text = UNTRAINED.format(gpus="[1]", seeds=list(range(cells)))
        (folder / "trial.yaml").write_text(text)

    @property
    def sweep(self) -> Path:
        return self.results / "trial"

    @property
    def cells(self) -> list[Path]:
        return sorted(self.sweep.glob("digits-*"))

    def notes(self) -> list[RunNote]:
        return read_notes(self.sweep)

    def queue(self, **states: str) -> None:
        """What squeue shows from now on: the sweep's jobs (``j101_0``) and Slurm's words."""
        self.fake.queue({job[1:]: state for job, state in states.items()},
                        job_name("trial", self.sweep))  # fmt: skip

    def say(self, command: str, *options: str, code: int = 0, cwd: Path = ROOT) -> Result:
        """What a command prints, which ends with this code."""
        argv = [command, str(self.folder / "trial.yaml"), "--results", str(self.results)]
        if command in ("sweep", "plan"):
            argv += ["--data", str(self.data), "--store", f"{self.data}/prepared"]
            argv += ["--site", str(self.folder / "site.yaml")]
        before, heard = Path.cwd(), signal.getsignal(signal.SIGTERM)
        os.chdir(cwd)
        try:
            with (
                patch.dict(os.environ, {"PATH": self.fake.path}),
                # each time a Python of its own would count the digits
                patch("jobs.plan.datasets._fetched", return_value=(1437, "digits-0")),
            ):
                found = CliRunner().invoke(app, [*argv, *options])
        finally:
            os.chdir(before)
            signal.signal(signal.SIGTERM, heard)
        assert found.exit_code == code, (found.stderr, found.exc_info)
        return found

    def submit(self, *options: str, code: int = 0, cwd: Path = ROOT) -> str:
        """What `make sweep WAIT=0 PREFLIGHT=0` says."""
        options = ("--no-wait", "--no-preflight", *options)
        return self.say("sweep", *options, code=code, cwd=cwd).stderr

    def age(self, minutes: float = 11) -> None:
        """As if everything in the sweep's folder had happened so long ago."""
        then = time.time() - 60 * minutes
        for note in self.notes():
            at = note.submitted_at - timedelta(minutes=minutes)
            write_note(self.sweep, note.model_copy(update={"submitted_at": at}))
        for file in self.sweep.rglob("*"):
            os.utime(file, (then, then))
