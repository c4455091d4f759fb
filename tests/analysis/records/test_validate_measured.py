"""What a record says that it measured contradicts itself, or cannot be; what can be passes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from analysis.records.validate import rejections
from tests.analysis.builders import START, config, rank_steps, record
from train.record.run import Attempt, RunRecord

TWO = config(gpus=2)


def wrong(**changes: object) -> RunRecord:
    return record(TWO, **changes)


def attempt(number: int, start: float, end: float, resumed: int = 0) -> Attempt:
    return Attempt(
        number=number, resumed_from_epoch=resumed, status="completed",
        started_at=START + timedelta(seconds=start), ended_at=START + timedelta(seconds=end),
    )  # fmt: skip


SECONDS = {"train_s": 10.0, "eval_s": 2.0}


def test_a_start_that_failed_may_have_the_number_of_one_that_left_no_record() -> None:
    """As after a power cut: the first start's epochs, 24 s, have the number of the second, which
    resumed from them and failed within 5 s."""
    failed = attempt(1, 100, 105).model_copy(update={"status": "failed"})
    changes = [{**SECONDS, "attempt": number} for number in (1, 1, 2)]
    attempts = (failed, attempt(2, 200, 213, resumed=2))
    found = record(TWO, attempts=attempts, throughput=None, epoch_changes=changes)
    assert rejections(found) == ()


def test_an_attempt_has_its_own_epochs_only() -> None:
    changes = [{**SECONDS, "attempt": number} for number in (1, 2, 2)]
    attempts = (attempt(1, 0, 13), attempt(2, 100, 120, resumed=1))
    found = record(TWO, attempts=attempts, throughput=None, epoch_changes=changes)
    assert rejections(found) == ("the epochs of attempt 2 took 24 s, yet it lasted 20 s",)


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
    ],
)  # fmt: skip
def test_attempts_and_epochs_must_agree(attempts, numbers, seconds, finding) -> None:
    changes = [{"attempt": number, "train_s": seconds, "eval_s": 0.0} for number in numbers]
    steps = tuple(rank_steps(rank, total=0.5) for rank in range(2))
    found = record(TWO, attempts=attempts, throughput=None, epoch_changes=changes, steps=steps)
    reasons = rejections(found)
    assert any(finding in reason for reason in reasons) if finding else reasons == (), reasons


def test_an_attempt_lasts_as_long_as_its_ranks_were_suspended_too() -> None:
    found = wrong(epoch_changes={"suspended_s": 1e300})
    assert any("epochs of attempt 1 took" in reason for reason in rejections(found))


def test_a_step_of_ranks_that_waited_for_a_suspended_one_can_be_long() -> None:
    steps = (rank_steps(0, total=500.0),)
    changes = [{}, {}, {"suspended_s": 600.0}]
    good = wrong(steps=steps, epoch_changes=changes, attempts=(attempt(1, 0, 700),))
    assert rejections(good) == ()
