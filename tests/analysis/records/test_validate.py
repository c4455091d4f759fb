"""Each doubt about a record rejects it, with the reason in words; a good one passes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from analysis.records.validate import reason_for, rejections
from tests.analysis.builders import START, config, rank_steps, record, technique
from train.config.run import Target
from train.config.schedule import Grow
from train.record.measurements import TargetOutcome, Throughput, ThroughputSample
from train.record.run import Attempt, RunRecord, Status

TWO = config(gpus=2)


def rate(images_per_s: float, sample: float) -> Throughput:
    samples = tuple(ThroughputSample(epoch=e, images_per_s=sample) for e in (2, 3))
    return Throughput(images_per_s=images_per_s, samples=samples, left_out=(1,))


def wrong(**changes: object) -> RunRecord:
    return record(TWO, **changes)


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
        (wrong(epoch_changes={"skipped_steps": 11}), "of 10 steps, 11 skipped"),
        (wrong(epoch_changes={"sampled_steps": 11}), "11 sampled in"),
        (wrong(epoch_changes={"sampled_s": 99.0}), "sampled in 99 of"),
        (wrong(epoch_changes={"suspended_s": 1e300}), "the epochs of attempt 1 took"),
        (wrong(throughput=rate(99_999.0, 100.0)), "99,999 images/s are not the median of its samp"),
        (wrong(throughput=rate(99_999.0, 99_999.0)), "images/s is not its images / seconds"),
        (wrong(steps=(rank_steps(0), rank_steps(1, total=-1.0))), "rank 1: a step of -1 s"),
        (wrong(steps=(rank_steps(0), rank_steps(1, total=0.0))), "rank 1: a step of 0 s"),
        (wrong(world_changes={"nodes": 50}), "met on 50 nodes, yet have the names of 1"),
        *((wrong(**{name: datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}),
           "a time in the year 1") for name in ("started_at", "ended_at")),
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
    changes = [{}, {"steps": 4, "images": 128, "train_loss": None}]
    broken = record(
        TWO, status="diverged", accuracies=[0.4, None], epoch_changes=changes, images_per_s=None
    )
    assert rejections(broken) == ()
    early = record(TWO, status="diverged", accuracies=[None, 0.4], epoch_changes=changes[::-1])
    (found,) = rejections(early)
    assert found.startswith("epoch 1: 4 steps of 32 images, the config asks for 10")


def test_a_config_that_its_own_data_cannot_carry_is_rejected() -> None:
    good = record(config(gpus=2))
    few = good.data.model_copy(update={"train_images": 20, "dropped_per_epoch": 20})
    (found,) = rejections(good.model_copy(update={"data": few}))
    assert found.startswith("its config cannot be run on its 20 training images: batch_per_rank")


def attempt(
    number: int, start: float, end: float, resumed: int = 0, status: Status = "completed"
) -> Attempt:
    return Attempt(
        number=number, resumed_from_epoch=resumed, status=status,
        started_at=START + timedelta(seconds=start), ended_at=START + timedelta(seconds=end),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("attempts", "numbers", "seconds", "finding"),
    [
        ((attempt(1, 0, 60),), (7, 7, 7), 1e15, "epoch 1 is of attempt 7, yet the last one, 1, "
         "went on after epoch 0"),
        ((attempt(1, 0, 60),), (1, 1, 7), 2.0, "epoch 3 is of attempt 7, yet the last one, 1,"),
        ((attempt(1, 0, 60, 3), attempt(2, 60, 90)), (1, 1, 1), 1e7, "epoch 1 is of attempt 1"),
        ((), (1, 1, 1), 2.0, "it lists no attempt"),
        ((attempt(1, 0, 30),), (1, 1, 1), 12.0, "attempt 1 took 36 s, yet it lasted 30 s"),
        ((attempt(1, 0, -1),), (1, 1, 1), 12.0, "attempt 1 took 36 s, yet it lasted -1 s"),
        ((attempt(1, 0, 35.2),), (1, 1, 1), 12.0, None),  # clocks may differ by a second
        # machines' clocks differ
        ((attempt(1, 0, 60), attempt(2, 50, 90, 1)), (1, 2, 2), 2.0, None),
        # a start that was killed and left no record, its number given again, or lost with the file
        ((attempt(1, 0, 60, resumed=1),), (1, 1, 1), 25.0, None),
        ((attempt(1, 0, 60, resumed=2),), (3, 2, 1), 20.0, None),
        # one that went on after the last epoch
        ((attempt(1, 0, 60), attempt(2, 60, 90, resumed=3)), (1, 1, 1), 10.0, None),
        # an attempt has its own epochs only
        ((attempt(1, 0, 13), attempt(2, 100, 125, 1)), (1, 2, 2), 12.0, None),
        # after a power cut: the first start's epochs have the number of the second, which resumed
        # from them and failed within 5 s
        ((attempt(1, 100, 105, status="failed"), attempt(2, 200, 213, 2)), (1, 1, 2), 12.0, None),
    ],
)  # fmt: skip
def test_attempts_and_epochs_must_agree(attempts, numbers, seconds, finding) -> None:
    changes = [{"attempt": one, "train_s": seconds - 0.5, "eval_s": 0.5} for one in numbers]
    found = record(TWO, attempts=attempts, throughput=None, epoch_changes=changes)
    reasons = rejections(found)
    assert any(finding in reason for reason in reasons) if finding else reasons == (), reasons


# of each epoch, 3 s of training and 1 s of validation
OF_EPOCHS = {"train_s": 3.0, "eval_s": 1.0}
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
        asked, accuracies=accuracies, epoch_changes=OF_EPOCHS, throughput=None, target=found
    )


def test_a_run_may_end_early_where_its_target_is_met_or_hopeless() -> None:
    assert rejections(run([0.2, 0.5, 0.6], outcome())) == ()
    assert rejections(run([0.2, 0.1], unmet("8.0 of 20 s spent, 4 needed"))) == ()


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
    assert finding in "; ".join(rejections(item))
