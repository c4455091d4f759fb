"""Runs with a target: they end when it is met or out of reach, on all ranks at the same epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import config, row
from tests.train.trainer.test_trainer import Killed, cell, curve, killed_at
from train.config.optimizer import Adam
from train.config.run import RunConfig, Target

PROGRAM = str(Path(__file__).parents[1] / "programs" / "first_rank_decides.py")


def aiming(target: Target | None, epochs: int = 6, gpus: int = 1) -> RunConfig:
    technique = row(base_lr=0.01, base_batch=16, optimizer=Adam())
    return config(
        technique=technique, epochs=epochs, gpus=gpus, batch_per_rank=16 // gpus, target=target
    )  # fmt: skip


#: More than any network has before it was trained, and less than this one soon holds.
GOAL = Target(validation_accuracy=0.4, held_for=2)


@pytest.mark.tf
def test_a_run_ends_where_its_target_is_met(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("whole", "aiming")]
    for folder in folders:
        folder.mkdir()
    whole = cell(aiming(None), folders[0]).train()
    held = [epoch.validation_accuracy >= 0.4 for epoch in whole.epochs]
    last = next(n for n in range(1, 6) if held[n - 1] and held[n])  # position of the second
    assert last < 5, "or it would not be seen to end early"
    found = cell(aiming(GOAL), folders[1]).train()
    assert curve(found.epochs) == curve(whole.epochs)[: last + 1]
    assert found.error is None and found.target.met and found.target.epoch == last + 1
    assert whole.target is None


@pytest.mark.tf
def test_a_run_without_hope_ends_as_a_result(tmp_path: Path) -> None:
    """The clock is up after the first epoch; a run cut short is not judged for what it learned."""
    target = Target(validation_accuracy=1, within_s=1e-6)
    found = cell(aiming(target), tmp_path).train()
    assert len(found.epochs) == 1 and found.error is None
    assert found.target.met is False and found.target.epoch is None


@pytest.mark.tf
def test_a_run_killed_after_its_target_was_met_trains_nothing_more(tmp_path: Path) -> None:
    run = cell(aiming(GOAL), tmp_path, killed_at("comparing the ranks' weights"))
    with pytest.raises(Killed):
        run.train()
    found = cell(aiming(GOAL), tmp_path, attempt=2).train()
    assert found.resumed_from == len(found.epochs) < 6
    assert found.target.met and found.target.epoch == len(found.epochs)


@pytest.mark.tf
def test_the_pace_of_other_devices_takes_no_hope(tmp_path: Path, monkeypatch: Any) -> None:
    """The pace of two epochs of one start shows that there is no hope."""
    monkeypatch.setattr("train.record.target.FASTER", 1e12)
    asked = aiming(Target(validation_accuracy=1, held_for=2, within_s=1e6))
    run = cell(asked, tmp_path, killed_at("comparing the ranks' weights"))
    with pytest.raises(Killed):
        run.train()
    found = cell(asked, tmp_path, attempt=2, device="B").train()
    assert (found.resumed_from, len(found.epochs)) == (2, 4)


@pytest.mark.ranks2
@pytest.mark.slow
def test_the_clock_of_the_first_rank_decides_for_all(start_ranks: Any, tmp_path: Path) -> None:
    """Its clock runs fast here: by its time there is no hope, by the other's there is. The number
    of the start is the first rank's, too, since the pace is that of epochs of one start."""
    outs = [json.loads(out) for out in start_ranks([PROGRAM, tmp_path], 2)]
    assert outs[0] == outs[1]
    assert outs[0]["met"] is False and len(outs[0]["seconds"]) == 1
    assert outs[0]["attempts"] == [5]
