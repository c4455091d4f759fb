"""A whole cell in this process and on two ranks: exact resume, and divergence as a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import config
from train.record import read_record
from train.technique import Sgd, Technique
from train.traces import rank_file


@pytest.mark.ranks2
def test_two_ranks_with_batch_norm_that_explode_are_a_diverged_result(
    start_ranks, tmp_path: Path, data_root: Path
) -> None:
    """The ranks stop in mid-epoch with batch-norm statistics of their own, which is no fault."""
    technique = Technique(
        name="exploding", base_lr=1e18, base_batch=64, normalisation="batch_norm",
        optimizer=Sgd(momentum=0.9),
    )  # fmt: skip
    of = config(gpus=2, technique=technique, model="resnet_mini")
    (tmp_path / "config.json").write_text(of.model_dump_json())
    file = str(tmp_path / "config.json")
    start_ranks(["-m", "train", file, "--data", str(data_root), "--stall-s", "60"], 2)
    record = read_record(tmp_path / "record.json")
    assert record.status == "diverged", record.error
    assert "not finite" in record.error.what
    last = record.epochs[-1]
    assert last.images == last.steps * of.global_batch and last.steps < 1437 // of.global_batch
    assert record.weights_sha256
    samples = rank_file(tmp_path, 1, "steps.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in samples]) == sum(e.steps for e in record.epochs)
