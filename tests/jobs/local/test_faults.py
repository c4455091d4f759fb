"""Disks that are full or refuse to be written: a record all the same, or a refusal in words."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.cell.state import survey
from jobs.config.load import load_sweep
from tests.builders import config, epoch, record
from tests.jobs.local.conftest import Sweep
from tests.jobs.local.scripted import alive, front, lay
from tests.sweeps import Bench, leftovers, lines, make_bench, wait_until
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
    folders = []

    def make(size: int, *options: str) -> Path:
        if os.geteuid() != 0:
            pytest.skip("mounting a small file system needs root")
        folder = tmp_path / f"disk-{len(folders)}"
        folder.mkdir()
        argv = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs"]
        done = subprocess.run([*argv, str(folder)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"mounting a small file system is not allowed here: {done.stderr.strip()}")
        folders.append(folder)
        return folder

    yield make
    for folder in folders:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave not one block; large files first, for speed."""
    for size in (MiB, 4096):
        with pytest.raises(OSError, match="No space left"):
            for number in range(10**6):
                (disk / f"filler-{size}-{number}").write_bytes(b"x" * size)


def test_a_rank_that_fills_the_disk(sweep: Sweep, disk) -> None:
    """It leaves no error and no log: there is no room for either."""
    waiting = "while not (STAGE / 'full').exists():\n    time.sleep(0.01)\n"
    trial = sweep(f"epoch(1)\n{FILL}\n{waiting}os._exit(1)\n", folder=disk(4 * MiB))
    assert trial.run() == ["failed"]
    found = read_record(trial.cell / "record.json")
    assert "No space left on device" in found.error.what
    assert "free space" in found.error.what_to_do
    assert len(found.epochs) == 1 and not alive(trial.cell)


def test_there_is_room_for_the_record_of_a_long_run(sweep: Sweep, disk) -> None:
    trial = sweep(f"{FILL}\nos._exit(1)\n", 1)
    long = config(epochs=3000)
    trial = lay(trial.stage, disk(16 * MiB), [long])
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
        wait_until((trial.stage.folder / "full").exists, "a full disk")
        process.kill()
    (found,) = survey(load_sweep(str(tmp_path / "trial.yaml")).configs, trial.sweep)
    assert found.status == "lost"
    assert read_record(found.folder / "record.json").status == "lost"


def test_no_room_at_all_is_said(tmp_path: Path, disk) -> None:
    """The disk was full before; nothing could be reserved."""
    trial = front(tmp_path, "good()\n")
    trial.results.symlink_to(disk(MiB))
    fill(trial.results)
    done = trial.run()
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr and "ree space" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cell_that_cannot_even_leave_a_record(tmp_path: Path, disk) -> None:
    """Its folder is removed from under it: the others run, the exit code is 1."""
    body = "import shutil; shutil.rmtree(CELL) if '-s0-' in CELL.name else good()\n"
    trial = front(tmp_path, body, seeds="[0, 1]")
    done = trial.run()
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "1 completed" in done.stderr


def test_a_read_only_results_folder_is_refused(tmp_path: Path, disk) -> None:
    trial = front(tmp_path, "good()\n")
    trial.results.symlink_to(disk(MiB, "ro"))
    done = trial.run()
    assert done.returncode == 2
    assert f"cannot write to the results folder {trial.results.resolve()}" in done.stderr
    assert "Read-only file system" in done.stderr and "RESULTS=DIR" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_disk_that_becomes_read_only_between_sweeps(tmp_path: Path, disk) -> None:
    trial = front(tmp_path, "good()\n", seeds="[0, 1]")
    folder = disk(4 * MiB)
    trial.results.symlink_to(folder)
    assert trial.run().returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    done = trial.run()
    assert done.returncode == 2 and "Read-only file system" in done.stderr


SWEEP = """
title: a test
dataset: digits
model: cnn
epochs: {epochs}
batch_per_rank: 64
matrix: {{gpus: [2], technique: [naive], seed: [0]}}
"""


@pytest.mark.ranks2
@pytest.mark.slow
def test_real_ranks_on_a_disk_that_fills_up(tmp_path: Path, disk, data_root: Path) -> None:
    bench = make_bench(tmp_path, data_root, SWEEP.format(epochs=2000))
    bench.results.symlink_to(disk(8 * MiB))
    process = bench.start()
    try:
        wait_until(lambda: any(lines(c / "epochs.jsonl") for c in bench.cells()), "an epoch")
        fill(bench.results)
        _, said = process.communicate(timeout=240)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert process.returncode == 1, said
    (record,) = bench.records()
    assert record.status == "failed" and "No space left on device" in record.error.what
    assert record.epochs and record.world.size == 2, "what was measured before is kept"
    assert not leftovers(bench.folder)
    for file in bench.results.glob("filler-*"):
        file.unlink()
    short = Bench(bench.folder, bench.data, "trial")
    (tmp_path / "trial.yaml").write_text(SWEEP.format(epochs=2))
    assert short.run().returncode == 0, "with room again it runs"
