"""True records and configs, small, for tests of every part."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError
from train.record.measurements import DataRecord, EpochRecord
from train.record.nulls import null_paths
from train.record.run import Attempt, Provenance, RunError, RunRecord, World

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def config(**changes: Any) -> RunConfig:
    technique = changes.pop("technique", None) or Technique(
        name="naive", base_lr=0.001, base_batch=64
    )
    values: dict[str, Any] = {
        "dataset": "digits", "model": "cnn", "technique": technique, "gpus": 1,
        "batch_per_rank": 64, "epochs": 2, "seed": 0,
    }  # fmt: skip
    return RunConfig(**(values | changes))


def row(**changes: Any) -> Technique:
    return Technique(**{"name": "t", "base_lr": 1.0, "base_batch": 1} | changes)


def refusal(of: Callable[..., object], *given: object) -> str:
    """What the function says where it refuses these arguments."""
    with pytest.raises(ConfigError) as caught:
        of(*given)
    return str(caught.value)


def namesakes() -> tuple[RunConfig, RunConfig]:
    """Two different configs whose ids are equal, found by trying numbers of epochs."""
    one, other = config(epochs=5271), config(epochs=5446)
    assert one != other and one.cell_id() == other.cell_id()
    return one, other


def epoch(number: int, of: RunConfig, **changes: Any) -> EpochRecord:
    values: dict[str, Any] = {
        "epoch": number, "attempt": 1, "global_batch": of.global_batch, "steps": 3,
        "images": 3 * of.global_batch, "train_s": 1.5, "eval_s": 0.25, "lr_first": 0.001,
        "lr_last": 0.001, "train_loss": 1 / number, "train_accuracy": 0.8,
        "validation_loss": 1.1 / number, "validation_accuracy": 0.75, "validation_images": 360,
    }  # fmt: skip
    return EpochRecord(**(values | changes))


def record(of: RunConfig | None = None, **changes: Any) -> RunRecord:
    of = of or config()
    status = changes.get("status", "completed")
    ended = BEGAN + timedelta(seconds=10)
    values: dict[str, Any] = {
        "cell_id": of.cell_id(),
        "status": status,
        "error": None if status == "completed" else RunError(what="w", where="x", what_to_do="y"),
        "config": of,
        "world": World(
            size=of.gpus, nodes=1, hostnames=("host",) * of.gpus, device_kind="cpu", device="CPU",
            cores_per_rank=1, oversubscribed=False, launcher="horoscale", controller="gloo",
            data_plane="gloo", interface="lo",
        ),
        "data": DataRecord(
            name="digits", fingerprint="f" * 64, train_images=1437, train_images_available=1437,
            validation_images=360, classes=10, dropped_per_epoch=29, order="option 1",
        ),
        "epochs": tuple(epoch(n + 1, of) for n in range(of.epochs)),
        "steps": None,
        "throughput": None,
        "weights_sha256": "a" * 64,
        "provenance": Provenance(
            git_commit=None, git_dirty=None, image_digest=None, versions={"python": "3.11"},
            cpu="CPU", gpu=None, driver=None, kernel="6.1", slurm_job_id=None,
            seeds={"run": of.seed},
            environment={"HOROSCALE_BLOCK": "r-0/0"},  # as earlier versions wrote it
        ),
        "attempts": (
            Attempt(
                number=1, resumed_from_epoch=0, started_at=BEGAN, ended_at=ended, status=status
            ),
        ),
        "started_at": BEGAN,
        "ended_at": ended,
    }  # fmt: skip
    values |= changes
    draft = RunRecord.model_construct(**values, missing={})
    nulls = null_paths(draft, whole=True)
    return RunRecord(**values, missing=dict.fromkeys(nulls, "a test has none"))
