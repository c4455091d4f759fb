"""Runs with a target whose steps follow a law, for tests: records that the report accepts."""

from __future__ import annotations

from typing import Any

from tests.analysis.builders import config, record, technique
from train.config.run import Target
from train.record.measurements import TargetOutcome
from train.record.run import RunRecord, Status

TARGET = Target(validation_accuracy=0.3, held_for=1)
SMALLEST, CRITICAL = 48, 64
TRAIN_IMAGES, EVAL_S = 256, 0.5


def epochs_of(batch: int) -> float:
    """Of S(B) = 48 (1 + 64 / B) steps: 15 epochs at 16, then 18, 24, 36 and 60 at 256."""
    return SMALLEST * (1 + CRITICAL / batch) * batch / TRAIN_IMAGES


def run(
    batch: int, seed: int = 0, *, name: str = "naive", epochs: int | None = None,
    met: bool = True, settings: dict[str, Any] | None = None, rate: float = 100.0,
    status: Status = "completed", world: dict[str, Any] | None = None, **changes: Any,
) -> RunRecord:  # fmt: skip
    """``epochs``: to the target, by default those of the law; a run that is not ``met`` had them in
    vain."""
    of = technique(name, **(settings or {}))
    asked = config(name, **{"batch_per_rank": batch, "seed": seed, "epochs": 100, "target": TARGET,
                            "technique": of, **changes})  # fmt: skip
    epochs = epochs or round(epochs_of(asked.global_batch))
    images = epochs * TRAIN_IMAGES
    met = met and status == "completed"
    outcome = TargetOutcome(
        met=met, epoch=epochs if met else None, images=images if met else None,
        steps=images // asked.global_batch if met else None,
        seconds=images / rate + epochs * EVAL_S if met else None,
        why="held" if met else "it could no longer be reached",
    )  # fmt: skip
    known = {"target": outcome} if status == "completed" else {}
    return record(
        asked, status=status, images_per_s=rate, train_images=TRAIN_IMAGES,
        world_changes=world, wall_s=1000,
        accuracies=[0.2] * (epochs - 1) + [0.4 if met else 0.2], **known,
    )  # fmt: skip
