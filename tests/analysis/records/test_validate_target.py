"""A target that a record speaks of must follow from its epochs."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.records.validate import rejections
from tests.analysis.builders import config, record
from train.config.run import Target
from train.record.run import RunRecord, TargetOutcome

# of each epoch, 3 s of training and 1 s of validation
SECONDS = {"train_s": 3.0, "eval_s": 1.0}
GOAL = Target(validation_accuracy=0.5, within_s=20)


def outcome(**changes: Any) -> TargetOutcome:
    """Held after epochs 2 and 3 of 20 steps and 320 images."""
    made = {"met": True, "epoch": 3, "steps": 60, "images": 960, "seconds": 12.0, "why": "held"}
    return TargetOutcome(**{**made, **changes})


def unmet(why: str) -> TargetOutcome:
    return outcome(met=False, epoch=None, steps=None, images=None, seconds=None, why=why)


def run(accuracies: list[float | None], found: TargetOutcome | None, **changes: Any) -> RunRecord:
    asked = config(epochs=6, **{"target": GOAL, **changes})
    return record(
        asked, accuracies=accuracies, epoch_changes=SECONDS, throughput=None, target=found
    )


def findings(item: RunRecord) -> str:
    return "; ".join(rejections(item))


def test_a_run_may_end_early_where_its_target_is_met_or_hopeless() -> None:
    assert findings(run([0.2, 0.5, 0.6], outcome())) == ""
    assert findings(run([0.2, 0.1], unmet("8.0 of 20 s spent, 4 needed"))) == ""


@pytest.mark.parametrize(
    ("item", "finding"),
    [
        (run([0.2, 0.5, 0.6], None), "does not say what came of it"),
        (run([0.2, 0.5, 0.6], outcome(), target=None), "the config sets none"),
        (run([0.2, 0.5, 0.6], unmet("too slow")), "(too slow); its epochs: met after epoch 3"),
        (run([0.2, 0.5, 0.4], outcome()), "960 images, 12.0 s); its epochs: not met"),
        (run([0.5, 0.5, 0.6], outcome()), "its epochs: met after epoch 2 (40 steps"),
        (run([0.2, 0.5, 0.6], outcome(steps=61)), "(61 steps, 960 images, 12.0 s); its epochs"),
        (run([0.2, 0.5, 0.6], outcome(images=1)), "60 steps, 1 images, 12.0 s); its epochs: met"),
        (run([0.2, 0.5, 0.6], outcome(seconds=9.0)), "960 images, 9.0 s); its epochs: met"),
        (run([0.2] * 7, unmet("ended")), "7 of 6 epochs"),
        (run([], unmet("ended")), "0 of 6 epochs, yet the status is completed"),
    ],
)
def test_a_contradiction_rejects(item: RunRecord, finding: str) -> None:
    assert finding in findings(item)
