"""From a sweep file to records with real Horovod ranks: completion, faults, resumption."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweeps import (
    ROOT,
    Bench,
    lines,
    make_bench,
    ran,
    rank_process,
    rank_processes,
    wait_until,
)
from train.record.run import read_record

# one worker, so that the whole sweep is trained once
pytestmark = [pytest.mark.ranks2, pytest.mark.xdist_group("end_to_end")]

SWEEP = """
title: a test
dataset: digits
model: cnn
epochs: {epochs}
batch_per_rank: 64
matrix:
  gpus: {gpus}
  technique: [{technique}]
  seed: {seeds}
"""


def sweep(epochs: int = 2, gpus: str = "[2]", technique: str = "naive", seeds: str = "[0]") -> str:
    return SWEEP.format(epochs=epochs, gpus=gpus, technique=technique, seeds=seeds)


@contextlib.contextmanager
def in_play(bench: Bench, *options: str, epochs: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A sweep of one cell, which has run so many epochs; nothing of it is left after."""
    process = bench.start(*options)
    try:
        wait_until(
            lambda: any(lines(c / "epochs.jsonl") >= epochs for c in bench.cells()), "epochs"
        )
        yield process
        assert not rank_processes(bench.folder)
    finally:  # its group holds the supervisors, and ranks end with these
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def trial(tmp_path_factory, data_root) -> Bench:
    """One whole sweep, run once for the tests that look at it."""
    bench = make_bench(
        tmp_path_factory.mktemp("trial"), data_root, sweep(3, "[1, 2]", "lamb", "[0, 1]")
    )
    done = bench.run()
    assert done.returncode == 0, done.stderr
    return bench


def test_sweep_leaves_one_good_record_per_cell(trial: Bench) -> None:
    records = trial.records()
    assert len(records) == 4
    for record in records:
        assert record.status == "completed" and record.error is None
        assert record.world.size == record.config.gpus
        assert record.world.launcher == "horoscale" and record.world.controller == "gloo"
        assert len(record.epochs) == 3 and len(record.steps) == record.config.gpus
        for epoch in record.epochs:
            assert epoch.images == epoch.steps * epoch.global_batch
            assert epoch.steps == 1437 // record.config.global_batch
            assert epoch.validation_images == 360
        confusion = record.classification.confusion
        assert sum(map(sum, confusion)) == 360, "of all ranks' images"
        right = sum(row[number] for number, row in enumerate(confusion))
        assert right / 360 == record.epochs[-1].validation_accuracy
        assert record.epochs[-1].validation_accuracy > 0.5, "it learns to read digits"
        assert record.data.dropped_per_epoch == 1437 % record.config.global_batch
        assert len(record.throughput.samples) == 2 and record.throughput.left_out == (1,)
        communication = record.steps[0].communication_s.median
        assert (communication == 0) == (record.config.gpus == 1)
        assert (record.steps[0].waiting_s is None) == (record.config.gpus == 1)
    assert not rank_processes(trial.folder)


def test_report_of_real_records(trial: Bench) -> None:
    done = ran([sys.executable, "-m", "analysis", "report", trial.sweep], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    report = trial.sweep / "report"
    for name in ("scaling.csv", "convergence.csv", "runs.csv", "report.html"):
        assert (report / name).stat().st_size > 0
    assert lines(report / "runs.csv") == 1 + 4
    for record in trial.records():
        assert record.cell_id in (report / "runs.csv").read_text()


@pytest.mark.slow
def test_the_example_of_an_own_network_runs_to_its_report(tmp_path: Path, data_root: Path) -> None:
    example = ROOT / "jobs" / "sweeps" / "own_network.yaml"
    bench = make_bench(tmp_path, data_root, example.read_text(), "own_network")
    shutil.copytree(example.parent / "networks", tmp_path / "networks")
    done = bench.run()
    assert done.returncode == 0, done.stderr
    (copy,) = bench.sweep.glob("models/*.py")
    assert copy.read_bytes() == (tmp_path / "networks" / "small.py").read_bytes()
    shutil.rmtree(tmp_path / "networks")  # records are read without it
    records = bench.records()
    assert {r.status for r in records} == {"completed"} and len(records) == 5
    assert all(record.epochs[-1].validation_accuracy > 0.3 for record in records)
    assert all((cell / "weights.h5").is_file() for cell in bench.cells())
    done = ran([sys.executable, "-m", "analysis", "report", bench.sweep], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert " · small · " in (bench.sweep / "report" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["horovodrun", "mpirun"])
def test_other_launchers_give_the_same_curve(trial: Bench, tmp_path, launcher: str) -> None:
    import horovod.tensorflow as hvd

    program, *options = [str(Path(sys.executable).with_name("horovodrun"))]
    if launcher == "mpirun":
        if not hvd.mpi_built():
            pytest.skip("this Horovod is built without MPI: make setup MPI=1 where mpicxx is there")
        program, *options = ["mpirun", "--oversubscribe"]
    ours = next(r for r in trial.records() if r.config.gpus == 2 and r.config.seed == 0)
    config = trial.sweep / ours.cell_id / "config.json"
    done = ran(
        [program, "-np", "2", *options, sys.executable, "-m", "train", config, "--out", tmp_path,
         "--data", trial.data], cwd=ROOT, timeout=240,
        env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    theirs = read_record(tmp_path / "record.json")
    # where Horovod is built with MPI, horovodrun itself calls mpirun
    assert theirs.world.launcher in ("mpirun", launcher)
    assert launcher == "horovodrun" or theirs.world.controller == "mpi"
    for a, b in zip(ours.epochs, theirs.epochs, strict=True):
        assert a.validation_accuracy == pytest.approx(b.validation_accuracy, abs=1e-6)
        assert a.train_loss == pytest.approx(b.train_loss, abs=1e-6)


def test_a_world_of_the_wrong_size_does_not_train(trial: Bench, tmp_path) -> None:
    """A launcher that lost its variables must not make a world of one train a 2-rank cell."""
    two = next(r for r in trial.records() if r.config.gpus == 2)
    config = trial.sweep / two.cell_id / "config.json"
    command = [sys.executable, "-m", "train", config, "--out", tmp_path, "--data", trial.data]
    done = ran(command, cwd=ROOT)
    assert done.returncode == 2
    assert "found a world of 1 rank" in done.stderr and "expected 2" in done.stderr
    assert not (tmp_path / "record.json").exists()


@pytest.mark.parametrize(
    ("act", "options", "what"),
    [
        ("kill", (), "SIGKILL"),
        pytest.param("suspend", ("--stall-s", "40"), "a hang: rank 1 shows no life",
                     marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_rank_that_is_gone_ends_the_cell_with_its_name(
    tmp_path, data_root, act: str, options: tuple[str, ...], what: str
) -> None:
    bench = make_bench(tmp_path, data_root, sweep(epochs=2000))
    with in_play(bench, *options) as process:
        (cell,) = bench.cells()
        getattr(rank_process(cell, 1), act)()
        _, text = process.communicate(timeout=60 if act == "kill" else 240)
    assert process.returncode == 1, text
    (record,) = bench.records()
    assert record.status == "failed" and record.world.size == 2
    assert record.error.rank == 1 and what in record.error.what
    assert record.epochs, "what was measured before is kept"


#: What one global batch of 128 is made of.
STRONG = """scaling: strong
global_batch: 128
partition: independent
data_fraction: 0.02"""


@pytest.mark.slow
def test_synthetic_data_strong_scaling_and_option_2(tmp_path, data_root) -> None:
    text = sweep(gpus="[1, 2]").replace("digits", "synthetic").replace("batch_per_rank: 64", STRONG)
    bench = make_bench(tmp_path, data_root, text)
    assert bench.run().returncode == 0
    for record in bench.records():
        assert record.config.global_batch == 128
        assert record.config.batch_per_rank == 128 // record.config.gpus
        assert record.data.order.startswith("option 2") and record.throughput.images_per_s > 0
        for epoch in record.epochs:
            assert epoch.images == 128 * epoch.steps
            assert epoch.train_accuracy is None and epoch.validation_accuracy is None
        assert "no meaning" in record.missing["epochs.validation_accuracy"]
