"""tf.distribute trains what Horovod trains: steps, whole cells, faults, and what is resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.sweeps import Bench, lines, make_bench, rank_process, rank_processes, wait_until
from train.record.run import RunRecord

# one worker, so that the whole sweep is trained once
pytestmark = [pytest.mark.ranks2, pytest.mark.slow, pytest.mark.xdist_group("distribute")]

PROGRAM = Path(__file__).parents[1] / "programs" / "frameworks.py"
OTHERS = ("multi_worker_mirrored", "mirrored")
#: A replica of one process shares its threads, so that sums are added up in another order.
ROUND_OFF = 1e-6
EPOCHS = 12
SWEEP = """
title: a test
dataset: digits
model: cnn
epochs: {epochs}
batch_per_rank: 64
gpus: 2
technique: batch_norm
seed: 3
matrix:
  framework: [{frameworks}]
"""


def first_steps(framework: str, start_ranks, folder: Path, data: Path) -> list[dict]:
    ranks = 1 if framework == "mirrored" else 2
    return [json.loads(out) for out in start_ranks([PROGRAM, framework, folder, data], ranks)]


@pytest.mark.timeout(3600)
def test_steps_equal_horovods(start_ranks, tmp_path, data_root, invariant) -> None:
    """Weights, pooled batch-norm statistics, and the two squares of the noise scale."""
    horovod = first_steps("horovod", start_ranks, tmp_path, data_root)
    for framework in OTHERS:
        told = first_steps(framework, start_ranks, tmp_path, data_root)
        for case, ours in horovod[0].items():
            assert len({rank[case]["hash"] for rank in told}) == 1, f"{framework} {case}: ranks"
            assert len({rank[case]["state"] for rank in told}) == 1, f"{framework} {case}: state"
            assert sum(rank[case]["rows"] for rank in told) == 32
            error = difference(ours["file"], told[0][case]["file"])
            invariant(f"T0 {framework}", f"12 steps of {case} as Horovod's", error, ROUND_OFF)


def difference(one: str, other: str) -> float:
    """Largest difference of any weight, and relative one of any squared norm."""
    with np.load(one) as a, np.load(other) as b:
        *names, last = a.files
        assert b.files == a.files
        weights = max(float(np.abs(a[name] - b[name]).max()) for name in names)
        moved = max(float(np.abs(a[name]).max()) for name in names)
        squares = float(np.abs(a[last] / b[last] - 1).max())
        assert moved > 0
    return max(weights, squares)


@pytest.fixture(scope="module")
def trial(tmp_path_factory, data_root) -> Bench:
    """The same cell by every framework."""
    text = SWEEP.format(epochs=EPOCHS, frameworks=", ".join(("horovod", *OTHERS)))
    bench = make_bench(tmp_path_factory.mktemp("frameworks"), data_root, text)
    done = bench.run(timeout_s=1100)
    assert done.returncode == 0, done.stderr
    return bench


def by_framework(bench: Bench) -> dict[str, RunRecord]:
    return {record.config.framework: record for record in bench.records()}


@pytest.mark.timeout(3600)
def test_every_framework_leaves_the_same_record(trial: Bench) -> None:
    records = by_framework(trial)
    horovod = records["horovod"]
    for name in OTHERS:
        record = records[name]
        assert record.status == "completed" and not record.alarms
        assert record.data == horovod.data and record.world.nodes == 1
        assert record.world.size == len(record.world.hostnames) == 2
        assert record.world.cores_per_rank == horovod.world.cores_per_rank
        assert record.world.data_plane == "tf.distribute"
        for ours, theirs in zip(horovod.epochs, record.epochs, strict=True):
            for field in ("images", "steps", "validation_images", "lr_first", "lr_last"):
                assert getattr(ours, field) == getattr(theirs, field), field
        assert all(steps.communication_s.median > 0 for steps in record.steps)
    assert records["multi_worker_mirrored"].world.interface == "lo"
    assert "one process" in records["mirrored"].missing["world.interface"]
    assert not rank_processes(trial.folder)


def test_workers_train_bit_for_bit_as_ranks_do(trial: Bench) -> None:
    """Two gradients have one sum, in whatever order it is taken."""
    records = by_framework(trial)
    workers, ranks = records["multi_worker_mirrored"], records["horovod"]
    assert curve(workers) == curve(ranks)
    assert workers.weights_sha256 == ranks.weights_sha256


def test_replicas_of_one_process_train_as_ranks_do(trial: Bench) -> None:
    """Their threads add in another order, and steps make more of that round-off."""
    records = by_framework(trial)
    for ours, theirs in zip(records["horovod"].epochs, records["mirrored"].epochs, strict=True):
        assert theirs.train_loss == pytest.approx(ours.train_loss, rel=0.02)
        assert theirs.validation_accuracy == pytest.approx(ours.validation_accuracy, abs=0.02)
        assert theirs.gradient_norm == pytest.approx(ours.gradient_norm, rel=0.05)


def curve(record: RunRecord) -> list[tuple[float | None, ...]]:
    return [(e.train_loss, e.validation_accuracy, e.gradient_norm) for e in record.epochs]


@pytest.mark.timeout(3600)
def test_a_worker_that_is_killed_ends_the_cell_and_an_interrupted_cell_goes_on(
    tmp_path, data_root
) -> None:
    # long enough to be met while it runs
    text = SWEEP.format(epochs=6 * EPOCHS, frameworks="multi_worker_mirrored")
    whole = make_bench(tmp_path / "whole", data_root, text)
    assert whole.run(timeout_s=1100).returncode == 0
    (straight,) = whole.records()
    bench = make_bench(tmp_path / "disturbed", data_root, text)
    assert ended_after_an_epoch(bench, lambda _: rank_process(bench.cells()[0], 1).kill()) == 1
    (record,) = bench.records()
    assert record.status == "failed" and record.error.rank == 1
    assert "SIGKILL" in record.error.what and not rank_processes(bench.folder)

    assert ended_after_an_epoch(bench, lambda run: os.killpg(run.pid, signal.SIGINT)) == 130
    assert not rank_processes(bench.folder)
    again = bench.run()
    assert again.returncode == 0 and "goes on from its checkpoint" in again.stderr
    (record,) = bench.records()
    assert record.attempts[-1].resumed_from_epoch >= 1
    assert record.weights_sha256 == straight.weights_sha256
    assert curve(record) == curve(straight)


def ended_after_an_epoch(bench: Bench, end: Callable[[subprocess.Popen[str]], None]) -> int:
    """Exit code of a sweep that was ended when its one cell had written down an epoch."""
    before = bench.cells()
    process = bench.start()
    try:
        if before:  # what a failed start left is taken away first
            wait_until(lambda: not any(map(epochs_done, bench.cells())), "a new start")
        wait_until(lambda: any(map(epochs_done, bench.cells())), "an epoch", 600)
        end(process)
        process.communicate(timeout=600)
    finally:
        process.kill()
    return process.returncode


def epochs_done(cell: Path) -> int:
    return lines(cell / "epochs.jsonl")
