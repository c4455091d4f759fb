"""Each doubt about a record rejects it, with the reason in words; a good one passes."""

from __future__ import annotations

import pytest

from analysis.records.validate import reason_for, rejections
from tests.analysis.builders import config, record, technique
from train.config.schedule import Grow
from train.record.run import RunRecord

TWO = config(gpus=2)


def wrong(**changes: object) -> RunRecord:
    return record(TWO, **changes)


def test_a_diverged_record_may_be_short_and_without_loss() -> None:
    early = record(
        TWO, status="diverged", accuracies=[None], epoch_changes={"train_loss": None, "steps": 1,
        "images": 32}, images_per_s=None,
    )  # fmt: skip
    assert rejections(early) == ()


def test_an_epoch_that_half_precision_skipped_whole_has_no_loss() -> None:
    """The last epoch has one in any case: without it the run has diverged."""
    good = record(TWO)
    over = {"train_loss": None, "skipped_steps": 10}
    reasons = good.missing | {"epochs.train_loss": "not a finite number in that epoch"}
    for position, fine in ((0, True), (1, True), (2, False)):
        epochs = list(good.epochs)
        epochs[position] = epochs[position].model_copy(update=over)
        found = good.model_copy(update={"epochs": tuple(epochs), "missing": reasons})
        assert (rejections(found) == ()) is fine, position


@pytest.mark.parametrize(
    ("bad", "finding"),
    [
        (wrong(epoch_changes={"images": 319}), "319 images processed, yet 10 steps x global"),
        (wrong(epoch_changes={"global_batch": 16, "images": 160}),
         "global batch 16 of 1 batches per rank, the config asks for 32 of 1 (and in 2 more"),
        (wrong(epoch_changes={"accumulation": 2, "global_batch": 32, "steps": 10, "images": 320}),
         "global batch 32 of 2 batches per rank, the config asks for 32 of 1"),
        (wrong(epoch_changes={"steps": 9, "images": 288}),
         "9 steps of 32 images, the config asks for 10 on 320 training images"),
        (wrong(epoch_changes={"validation_images": 300}), "300 of 360 held-out images"),
        (wrong(epoch_changes={"train_loss": None}),
         "epoch 1: training loss is null (left out by the test) (and in 2 more"),
        (wrong(epoch_changes={"epoch": 2}), "epochs are [2, 2, 2]"),
        (wrong(accuracies=[0.4, 0.5]), "2 of 3 epochs"),
        (wrong(world_changes={"size": 1}), "1 ranks met, the config asks for 2"),
        (wrong(accuracies=[0.4] * 4), "4 of 3 epochs"),
        (wrong(weights_sha256=None), "equal weights (left out by the test)"),
        (wrong(world=None), "world is null"),
        (wrong(data=None), "data is null"),
    ],
)  # fmt: skip
def test_a_doubt_rejects(bad: RunRecord, finding: str) -> None:
    assert any(finding in reason for reason in rejections(bad))


def test_reasons_come_from_the_record_or_its_parent() -> None:
    item = record(TWO, throughput=None, missing={"throughput": "one epoch"})
    assert reason_for(item, "throughput.images_per_s") == "one epoch"
    assert reason_for(item, "epochs.train_loss") == "the record gives no reason"


def test_a_rate_that_its_epochs_do_not_bear_out_is_rejected() -> None:
    good = record()
    assert good.throughput is not None
    boasted = good.throughput.model_copy(update={"images_per_s": 99_999.0})
    (found,) = rejections(good.model_copy(update={"throughput": boasted}))
    assert "99,999 images/s are not the median of its samples" in found
    samples = tuple(s.model_copy(update={"images_per_s": 99_999.0}) for s in boasted.samples)
    invented = boasted.model_copy(update={"samples": samples})
    (found,) = rejections(good.model_copy(update={"throughput": invented}))
    assert "is not its images / seconds" in found


def test_records_from_before_the_latest_fields_pass() -> None:
    """What users have on disk: neither the newer fields nor reasons for their absence."""
    old = record(TWO).model_dump(mode="json")
    for name in ("classification", "target", "sharpness", "alarms", "why_no_overlap",
                 "gradient_bytes", "adapted"):  # fmt: skip
        del old[name]
    for name in ("accumulation", "framework", "target"):
        del old["config"][name]
    newer = ("lr_mean", "accumulation", "skipped_steps", "gradient_norm", "noise", "trust", "gain",
             "suspended_s", "sampled_steps", "sampled_s", "steps_per_call")  # fmt: skip
    old["epochs"] = [{k: v for k, v in one.items() if k not in newer} for one in old["epochs"]]
    for name in ("unused_gpus", "kernel"):
        del old["provenance"][name]
    newer = ("update_s", "sampled", "exposed_s", "waiting_s", "negotiation_s")
    old["steps"] = [{k: v for k, v in one.items() if k not in newer} for one in old["steps"]]
    old["missing"] = {}
    found = RunRecord.model_validate(old)
    assert "lr_mean" not in found.epochs[0].model_fields_set
    assert rejections(found) == ()


GROWS = config(
    gpus=2,
    batch_per_rank=8,
    technique=technique(batch_growth=Grow(milestones=(0.4, 0.7), factor=3, largest=160)),
)


def test_a_batch_grows_when_and_by_what_the_config_says() -> None:
    """16, 48 and 144 images a step: 320, 288 and 288 of 320."""
    grown = record(GROWS)
    assert [e.accumulation for e in grown.epochs] == [1, 3, 9]
    assert [e.steps for e in grown.epochs] == [20, 6, 2]
    assert rejections(grown) == ()


#: 83 images, 8 a step for 3, which divide nothing: 3 x 27 steps are 8 epochs of 10 and one of 1
ADAPTED = config(
    gpus=2, batch_per_rank=4, technique=technique(regime_adaptation=True, base_batch=3)
)


def test_regime_adaptation_trains_the_planned_epochs() -> None:
    good = record(ADAPTED, train_images=83)
    assert [e.steps for e in good.epochs] == [10] * 8 + [1]
    assert rejections(good) == ()
    short = record(ADAPTED, train_images=83, accuracies=[0.4] * 8)
    (found,) = rejections(short)
    assert found == "8 of 9 epochs, yet the status is completed"
    changes = [{}] * 8 + [{"steps": 10, "images": 80}]
    long = record(ADAPTED, train_images=83, epoch_changes=changes)
    (found,) = rejections(long)
    assert found == "epoch 9: 10 steps of 8 images, the config asks for 1 on 83 training images"


def test_a_diverged_run_may_be_broken_off_in_its_last_epoch_only() -> None:
    changes = [{}, {"steps": 4, "images": 128}]
    broken = record(TWO, status="diverged", accuracies=[0.4, None], epoch_changes=changes)
    assert rejections(broken) == ()
    early = record(TWO, status="diverged", accuracies=[None, 0.4], epoch_changes=changes[::-1])
    (found,) = rejections(early)
    assert found.startswith("epoch 1: 4 steps of 32 images, the config asks for 10")


def test_a_config_that_its_own_data_cannot_carry_is_rejected() -> None:
    for seed in (0, 5):
        good = record(config(gpus=2, seed=seed))
        few = good.data.model_copy(update={"train_images": 20, "dropped_per_epoch": 20})
        (found,) = rejections(good.model_copy(update={"data": few}))
        said = "its config cannot be run on its 20 training images: cell"
        assert found.startswith(f"{said} {good.cell_id}")
