"""Every technique: a run killed and resumed is the run that was never killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs.config.techniques import changed, load_techniques
from tests.builders import config
from tests.train.trainer.test_trainer import cell, curve, steps_of
from train.config.run import RunConfig
from train.config.technique import Technique
from train.record.cell_folder import read_epochs

BATCH, BASE_BATCH, EPOCHS = 8, 4, 4
#: Their batches cannot be accumulated.
SINGLE = ("sync_batch_norm", "adasum", "novograd_tfa")
#: Rows that keep something of their own from step to step; the others run in make test-all.
QUICK = ("adascale", "gradient_noise", "growing_batch", "lamb", "mixed_precision", "tuned")
ROWS = load_techniques()
#: Treats the first step of a run in its own way.
OF_NO_ROW = "novograd_tfa"


def toy(name: str) -> RunConfig:
    """The row, or naive with that optimizer, on 83 tiny images: all that it does in 4 epochs."""
    row = ROWS.get(name, ROWS["naive"])
    changes: dict[str, Any] = {"warmup_epochs": min(1.5, row["warmup_epochs"])}
    if name == OF_NO_ROW:
        changes["optimizer"] = name
    if row["normalisation"] == "ghost_batch_norm":
        changes["ghost_batch"] = 4
    if row["zero_gamma"]:
        changes["zero_gamma"] = False  # of residual branches, which the network does not have
    if row["noise_batch"]:
        changes["noise_batch"] = BASE_BATCH
    if row["batch_growth"]["name"] == "grow":
        changes["batch_growth"] = {"milestones": [0.5], "factor": 2, "largest": 64}
    settings = {"name": name, "base_batch": BASE_BATCH, **changed(row, changes)}
    technique = Technique.model_validate_json(json.dumps(settings))
    accumulation = 1 if name in SINGLE else 2
    return config(
        dataset="fashion_mnist", technique=technique, epochs=EPOCHS, accumulation=accumulation,
        batch_per_rank=2 * BATCH // accumulation,
    )  # fmt: skip


@pytest.mark.tf
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in (*ROWS, OF_NO_ROW)
    ],
)
def test_killed_and_resumed(name: str, tmp_path: Path, invariant: Any) -> None:
    """A copy of the cell's folder, taken in the middle of epoch 3, is what a kill leaves there."""
    asked, whole, killed = toy(name), tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()

    def beat(phase: str, *_: float) -> None:
        if phase == "settling the batch-norm statistics after epoch 3":
            shutil.copytree(whole, killed)

    runs = cell(asked, whole, beat), cell(asked, killed, attempt=2)
    steps = [steps_of(run) for run in runs]
    straight, resumed = runs[0].train(), runs[1].train()
    assert resumed.resumed_from == 2 and len(straight.epochs) >= EPOCHS
    assert [e.attempt for e in resumed.epochs[:4]] == [1, 1, 2, 2]
    assert curve(resumed.epochs) == curve(straight.epochs)
    assert read_epochs(killed) == resumed.epochs
    rates = [[(step.rate, step.loss) for step in taken] for taken in steps]
    assert rates[1] == rates[0][-len(rates[1]) :]
    apart = float(resumed.weights_sha256 != straight.weights_sha256)
    invariant(f"T0 {name}", "killed in epoch 3 and resumed: hashes of all state differ", apart, 0)
