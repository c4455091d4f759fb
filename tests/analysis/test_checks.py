"""Each doubt about a record rejects it, with the reason in words; a good one passes."""

from __future__ import annotations

import pytest

from analysis.checks import reason_for, rejections
from tests.analysis.builders import config, failed, record
from train.record import RunRecord

TWO = config(gpus=2)


def wrong(**changes: object) -> RunRecord:
    return record(TWO, **changes)


def test_a_good_record_passes() -> None:
    good = record(TWO)
    assert rejections(good, good.cell_id) == ()


def test_a_diverged_record_may_be_short_and_without_loss() -> None:
    early = record(
        TWO, status="diverged", accuracies=[None], epoch_changes={"train_loss": None, "steps": 1,
        "images": 32}, images_per_s=None,
    )  # fmt: skip
    assert rejections(early, early.cell_id) == ()


@pytest.mark.parametrize(
    ("bad", "finding"),
    [
        (wrong(epoch_changes={"images": 319}), "319 images processed, yet 10 steps x global"),
        (wrong(epoch_changes={"global_batch": 16, "images": 160}), "the config asks for 32"),
        (wrong(epoch_changes={"steps": 9, "images": 288}), "make 288 of 320 training images"),
        (wrong(epoch_changes={"validation_images": 300}), "300 of 360 held-out images"),
        (
            wrong(epoch_changes={"train_loss": None}),
            "epoch 1: training loss is null (left out by the test) (and in 2 more",
        ),
        (wrong(epoch_changes={"epoch": 2}), "epochs are [2, 2, 2]"),
        (wrong(accuracies=[0.4, 0.5]), "2 of 3 epochs"),
        (wrong(world_changes={"size": 1}), "1 ranks met, the config asks for 2"),
        (wrong(weights_sha256=None), "equal weights (left out by the test)"),
        (wrong(world=None), "world is null"),
        (wrong(data=None), "data is null"),
        (wrong(wall_s=-1.0), "ended before it started"),
    ],
)
def test_a_doubt_rejects(bad: RunRecord, finding: str) -> None:
    assert any(finding in reason for reason in rejections(bad, bad.cell_id))


def test_a_record_in_the_folder_of_another_cell() -> None:
    good = record(TWO)
    assert rejections(good, "other") == (f"the record belongs to cell {good.cell_id}",)


def test_a_failed_record_is_not_rejected_but_failed() -> None:
    assert rejections(failed(TWO), TWO.cell_id()) == ()


def test_reasons_come_from_the_record_or_its_parent() -> None:
    item = record(TWO, throughput=None, missing={"throughput": "one epoch"})
    assert reason_for(item, "throughput.images_per_s") == "one epoch"
    assert reason_for(item, "epochs.train_loss") == "the record gives no reason"


def test_a_rate_that_its_epochs_do_not_bear_out_is_rejected() -> None:
    good = record()
    assert good.throughput is not None
    boasted = good.throughput.model_copy(update={"images_per_s": 99_999.0})
    (found,) = rejections(good.model_copy(update={"throughput": boasted}), good.cell_id)
    assert "99,999 images/s are not the median of its samples" in found
    samples = tuple(s.model_copy(update={"images_per_s": 99_999.0}) for s in boasted.samples)
    invented = boasted.model_copy(update={"samples": samples})
    (found,) = rejections(good.model_copy(update={"throughput": invented}), good.cell_id)
    assert "is not its images / seconds" in found
