"""Disks that are full or refuse to be written: a record all the same, or a refusal in words."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.cell.state import stand
from jobs.config.load import load_sweep
from tests.builders import config, epoch, record
from tests.jobs.local.conftest import Sweep
from tests.jobs.local.scripted import front
from tests.sweeps import ran, rank_processes, wait_until
from train.record.run import read_record

#: a rank fills the disk, and can then say nothing more
FILL = """
if RANK == 0:
    try:
        with open(CELL / "filler", "wb", buffering=0) as out:
            while True:
                out.write(b"x" * 4096)
    except OSError:
        mark_full = open(STAGE / "full", "w").close()
"""
MiB = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A small file system of its own; needs root."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def make(size: int) -> Path:
        if os.geteuid() != 0:
            pytest.skip("mounting a small file system needs root")
        argv = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
        done = ran([*argv, folder])
        if done.returncode != 0:
            pytest.skip(f"mounting a small file system is not allowed here: {done.stderr.strip()}")
        return folder

    yield make
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_rank_that_fills_the_disk(sweep: Sweep, disk) -> None:
    """It leaves no error and no log: there is no room for either."""
    waiting = "while not (STAGE / 'full').exists():\n    time.sleep(0.01)\n"
    trial = sweep(f"epoch(1)\n{FILL}\n{waiting}os._exit(1)\n", folder=disk(4 * MiB))
    assert trial.run() == ["failed"]
    found = read_record(trial.cell / "record.json")
    assert "No space left on device" in found.error.what
    assert "free space" in found.error.what_to_do
    assert len(found.epochs) == 1 and not rank_processes(trial.cell)


def test_there_is_room_for_the_record_of_a_long_run(sweep: Sweep, disk) -> None:
    long = config(epochs=3000)
    trial = sweep(f"{FILL}\nos._exit(1)\n", folder=disk(16 * MiB), configs=[long])
    (trial.cell / "record.json").write_text(record(long, status="timeout").model_dump_json())
    (trial.cell / "checkpoint.npz").write_text("x")
    text = "".join(epoch(n + 1, long).model_dump_json() + "\n" for n in range(3000))
    (trial.cell / "epochs.jsonl").write_text(text)
    assert trial.run() == ["failed"]
    assert len(read_record(trial.cell / "record.json").epochs) == 3000
    assert (trial.cell / "record.json").stat().st_size > MiB


def test_a_sweep_killed_on_a_full_disk(tmp_path: Path, disk) -> None:
    trial = front(tmp_path, f"epoch(1)\n{FILL}\nlive()\n")
    trial.results.symlink_to(disk(4 * MiB))
    with trial.start() as process:
        wait_until((trial.stage / "full").exists, "a full disk")
        process.kill()
    (one,) = load_sweep(str(tmp_path / "trial.yaml")).configs
    assert stand(one, trial.cells()[0]).status == "lost"
