"""Every technique: a run that was killed and resumed is the run that was never killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs.config.techniques import changed, load_techniques
from tests.builders import config
from tests.train.trainer.test_trainer import applied, cell, curve
from train.config.run import RunConfig
from train.config.technique import Technique

BATCH, BASE_BATCH, EPOCHS = 8, 4, 4
PROGRAMS = Path(__file__).parents[1] / "programs"
#: Between ranks only, so that batches cannot be accumulated.
SINGLE = ("sync_batch_norm", "adasum")
#: Rows that keep something of their own from step to step; the others run in make test-all.
QUICK = ("adascale", "gradient_noise", "growing_batch", "mixed_precision", "tuned")
BETWEEN_RANKS = (*SINGLE, "fp16_compression", "bf16_compression")


def toy(name: str, gpus: int = 1) -> RunConfig:
    """The row on 83 tiny images, in 5 steps an epoch, with all that it does within a few epochs."""
    row = load_techniques()[name]
    changes: dict[str, Any] = {"warmup_epochs": min(1.5, row["warmup_epochs"])}
    if row["normalisation"] == "ghost_batch_norm":
        changes["ghost_batch"] = 4
    if row["noise_batch"]:
        changes["noise_batch"] = BASE_BATCH
    if row["batch_growth"]["name"] == "grow":
        changes["batch_growth"] = {"milestones": [0.5], "factor": 2, "largest": 64}
    settings = {"name": name, "base_batch": BASE_BATCH, **changed(row, changes)}
    technique = Technique.model_validate_json(json.dumps(settings))
    accumulation = 1 if name in SINGLE or gpus > 1 else 2
    return config(
        dataset="fashion_mnist", technique=technique, epochs=EPOCHS, gpus=gpus,
        batch_per_rank=2 * BATCH // accumulation // gpus,
        accumulation=accumulation,
    )  # fmt: skip


@pytest.mark.tf
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in load_techniques()],
)
def test_killed_and_resumed(name: str, tmp_path: Path, invariant: Any) -> None:
    """A copy of the cell's folder, taken in the middle of epoch 3, is what a kill leaves there."""
    asked, whole, killed = toy(name), tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()

    def beat(phase: str) -> None:
        if phase == "settling the batch-norm statistics after epoch 3":
            shutil.copytree(whole, killed)

    straight = cell(asked, whole, beat).train(resume=False)
    resumed = cell(asked, killed, attempt=2).train(resume=True)
    assert resumed.resumed_from == 2 and len(straight.epochs) >= EPOCHS
    assert curve(resumed.epochs) == curve(straight.epochs)
    assert applied(killed) == applied(whole)
    apart = float(resumed.weights_sha256 != straight.weights_sha256)
    invariant(f"T0 {name}", "killed in epoch 3 and resumed: hashes of all state differ", apart, 0)


@pytest.mark.ranks2
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_and_resumed_on_two_ranks(start_ranks: Any, tmp_path: Path, invariant: Any) -> None:
    """Those of which one rank alone would do nothing: see toy's world of one above."""
    program = str(PROGRAMS / "resumed.py")
    outs = [json.loads(out) for out in start_ranks([program, tmp_path, *BETWEEN_RANKS], 2)]
    assert outs[0] == outs[1]
    for name in BETWEEN_RANKS:
        told = outs[0][name]
        assert told["resumed_from"] == 2 and len(told["straight"][1]) == EPOCHS
        apart = float(told["resumed"] != told["straight"])
        invariant(f"T0 {name}", "2 ranks killed in epoch 3 and resumed: state differs", apart, 0)
