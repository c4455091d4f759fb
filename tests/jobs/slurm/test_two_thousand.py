"""A sweep of 2,000 cells on a cluster of fakes: how often Slurm is called to submit and to watch.

Counts, not seconds: these depend on the machine.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner, Result

from jobs.__main__ import app
from jobs.slurm.submissions import job_name, read_notes
from tests.jobs.slurm.fakes import FakeSlurm, fake_slurm

CELLS = 2000
SWEEP = f"""
title: very many cells
dataset: digits
model: cnn
epochs: 2
batch_per_rank: 64
matrix:
  gpus: [1]
  technique: [naive]
  seed: {list(range(CELLS))}
"""
SITE = "partition: practice\nranks_per_node: 1\ntime_min: 5\nimage: none\narray_limit: 1000\n"


def call(fake: FakeSlurm, folder: Path, command: str, *options: str) -> Result:
    argv = [command, str(folder / "many.yaml"), "--results", str(folder / "results"), *options]
    before = signal.getsignal(signal.SIGTERM)
    try:
        with patch.dict(os.environ, {"PATH": fake.path}):
            return CliRunner().invoke(app, argv)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module")
def submitted(
    tmp_path_factory: pytest.TempPathFactory, data_root: Path
) -> tuple[FakeSlurm, Path, Result]:
    folder = tmp_path_factory.mktemp("many")
    fake = fake_slurm(folder / "bin")
    (folder / "many.yaml").write_text(SWEEP)
    (folder / "site.yaml").write_text(SITE)
    data = ["--data", str(data_root), "--store", str(data_root / "prepared")]
    site = ["--site", str(folder / "site.yaml")]
    done = call(fake, folder, "sweep", *data, *site, "--no-wait", "--no-preflight")
    return fake, folder, done


def names(fake: FakeSlurm) -> list[str]:
    return [call[0] for call in fake.calls()]


def test_two_sbatch_and_three_questions_submit_all(
    submitted: tuple[FakeSlurm, Path, Result],
) -> None:
    fake, folder, done = submitted
    assert done.exit_code == 0, done.stderr
    assert "submitted 2000 cells in 2 sbatch calls" in done.stderr
    notes, _ = read_notes(folder / "results" / "many")
    assert [len(array.units) for note in notes for array in note.arrays] == [1000, 1000]
    asked = names(fake)
    assert asked.count("sbatch") == 2
    assert sorted(name for name in asked if name not in ("sbatch", "srun")) == [
        "scontrol", "sinfo", "squeue",
    ]  # fmt: skip


def test_a_status_asks_once(submitted: tuple[FakeSlurm, Path, Result]) -> None:
    fake, folder, _ = submitted
    name = job_name("many", folder / "results" / "many")
    fake.queue({f"{101 + n // 1000}_{n % 1000}": "PENDING" for n in range(CELLS)}, name)
    fake.forget()
    done = call(fake, folder, "status")
    assert done.exit_code == 0, done.stderr
    assert names(fake) == ["squeue"]
    assert done.stdout.count(" waiting") >= CELLS
