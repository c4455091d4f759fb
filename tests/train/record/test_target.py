"""A target is met when it was held long enough and in time; hopeless only when nothing can help."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import config, epoch
from train.config.run import Target
from train.record.measurements import EpochRecord, TargetOutcome
from train.record.target import Pursuit


def outcome(
    epochs: Sequence[EpochRecord], target: Target, planned: int, broke_off: str | None = None
) -> TargetOutcome | None:
    return Pursuit(target, planned, epochs).outcome(broke_off)


def met(epochs: Sequence[EpochRecord], target: Target, planned: int = 9) -> bool | None:
    """None: undecided."""
    found = outcome(epochs, target, planned)
    return None if found is None else found.met


def run(
    *accuracies: tuple[float | None, float | None], seconds: Sequence[float] | None = None,
    attempts: Sequence[int] | None = None,
) -> list[EpochRecord]:  # fmt: skip
    """Epochs of (training, validation) accuracy; ``seconds`` of each, a tenth of it validation."""
    times = seconds or [10.0] * len(accuracies)
    starts = attempts or [1] * len(accuracies)
    return [
        epoch(i, config(), train_accuracy=train, validation_accuracy=validation, attempt=start,
              train_s=0.9 * time, eval_s=0.1 * time)
        for i, ((train, validation), time, start) in enumerate(
            zip(accuracies, times, starts, strict=True), 1)
    ]  # fmt: skip


def both(**changes: Any) -> Target:
    return Target(**{"train_accuracy": 0.75, "validation_accuracy": 0.5, **changes})


def test_each_accuracy_says_when_it_was_held_by_itself() -> None:
    """Training never, validation too late for the clock: the record tells of both."""
    epochs = run((0.7, 0.4), (0.8, 0.6), (0.7, 0.6), (0.8, 0.3), seconds=[2.0, 4.0, 6.0, 8.0])
    found = outcome(epochs, both(within_s=11), 4)
    assert found is not None and not found.met
    train, validation = found.held
    assert (train.accuracy, train.goal, train.epoch, train.seconds) == ("train", 0.75, None, None)
    assert (validation.accuracy, validation.epoch, validation.steps) == ("validation", 3, 9)
    assert validation.seconds == pytest.approx(12) and validation.images == 3 * 3 * 64
    one = outcome(run((0.6, 0.6)), Target(validation_accuracy=0.5, held_for=1), 3)
    assert one is not None and [goal.epoch for goal in one.held] == [1]


GOOD, POOR, OVERFITTED = (0.75, 0.5), (0.7, 0.6), (0.9, 0.4)


def test_both_accuracies_at_two_evaluations_in_a_row() -> None:
    """The first streak of that length counts, whatever comes later."""
    epochs = run(GOOD, POOR, GOOD, OVERFITTED, GOOD, GOOD, POOR, GOOD, GOOD)
    assert [met(epochs[:done], both()) for done in range(7)] == [None] * 6 + [True]
    found = outcome(epochs, both(), 9)
    assert found is not None and found.seconds == pytest.approx(60)
    assert (found.epoch, found.steps, found.images) == (6, 6 * 3, 6 * 3 * 64)
    assert "2 evaluations in a row, the last after epoch 6 and 60.0 s" in found.why


@pytest.mark.parametrize(
    ("target", "at"),
    [
        (Target(validation_accuracy=0.5), 2),
        (Target(train_accuracy=0.75, held_for=1), 2),
        (Target(train_accuracy=0.75, held_for=3), 4),
    ],
)
def test_one_accuracy_alone_and_other_counts(target: Target, at: int) -> None:
    epochs = run(POOR, GOOD, GOOD, OVERFITTED, POOR)
    assert [met(epochs[:done], target) for done in (at - 1, at)] == [None, True]


def test_an_accuracy_exactly_at_the_target_holds_it() -> None:
    """7 of 10 images are 0.7, as the sweep file says it."""
    assert met(run((7 / 10, 7 / 10)), Target(train_accuracy=0.7, held_for=1))
    found = outcome(run((0.7499999, 0.9)), Target(train_accuracy=0.75, held_for=1), 1)
    assert found is not None and "0.7499 of 0.75" in found.why, "not rounded up to the target"


def test_a_null_holds_nothing_and_breaks_a_streak() -> None:
    assert met(run(GOOD, (None, 0.9), GOOD), both()) is None
    found = outcome(run(GOOD, (0.9, None)), both(), 2)
    assert found is not None and "validation accuracy unknown of 0.5" in found.why


def test_time_is_of_training_and_validation_over_all_starts() -> None:
    epochs = run(POOR, GOOD, GOOD, seconds=[100, 20, 30], attempts=[1, 2, 2])
    found = outcome(epochs, both(within_s=150), 9)
    assert found is not None and found.met, "a limit may be used up"
    assert found.seconds == pytest.approx(150) and "of 150 s" in found.why
    found = outcome(epochs, both(within_s=149), 9)
    assert found is not None and not found.met
    assert "held only after epoch 3 and 150.0 of 149 s; the last evaluation: held" in found.why


@pytest.mark.parametrize(
    ("accuracies", "planned", "expected"),
    [
        ([POOR], 3, None),  # two left, two needed
        ([POOR, POOR], 3, False),  # one left, two needed
        ([POOR, GOOD], 3, None),  # one left, one needed
        ([], 1, False),
    ],
)
def test_hopeless_when_too_few_epochs_are_left(accuracies, planned, expected) -> None:
    assert met(run(*accuracies), both(), planned) is expected


@pytest.mark.parametrize(
    ("accuracies", "seconds", "within", "expected"),
    [
        # the first epoch of a start traces the graph: nothing is known of the pace
        ([POOR], [90], 100, None),
        ([POOR], [100], 100, False),
        # one more of at least 0.9 x 10 s, since the last one held
        ([POOR, GOOD], [50, 10], 69, None),
        ([POOR, GOOD], [50, 10], 68.9, False),
        # two more; the fastest counts, not the last one
        ([POOR, POOR, POOR], [50, 10, 20], 98, None),
        ([POOR, POOR, POOR], [50, 10, 20], 97.9, False),
    ],
)
def test_hopeless_when_the_time_left_is_too_short(accuracies, seconds, within, expected) -> None:
    assert met(run(*accuracies, seconds=seconds), both(within_s=within), 99) is expected


def test_a_new_start_says_nothing_of_the_pace() -> None:
    epochs = run(POOR, POOR, seconds=[1, 50], attempts=[1, 2])
    assert met(epochs, both(within_s=52), 99) is None
    assert met(epochs, both(within_s=51), 99) is False


def test_the_reason_says_what_was_missing() -> None:
    found = outcome(run(POOR, OVERFITTED, seconds=[50, 10]), both(within_s=70), 9)
    assert found is not None and found.why == (
        "2 more evaluations in a row needed, 60.0 of 70 s spent after epoch 2, and the fastest "
        "epoch so far took 10.0 s; the last evaluation: validation accuracy 0.4 of 0.5"
    )
    found = outcome(run(POOR, GOOD), both(), 2)
    assert found is not None and found.why == (
        "1 more evaluation in a row needed, no epoch left after epoch 2; the last evaluation: held"
    )
    found = outcome(run((0.1, 0.2)), both(), 2)
    assert found is not None and found.why == (
        "2 more evaluations in a row needed, 1 of 2 epochs left after epoch 1; the last "
        "evaluation: training accuracy 0.1 of 0.75, validation accuracy 0.2 of 0.5"
    )


def test_a_run_that_broke_off_did_not_meet_it() -> None:
    assert outcome(run(POOR), both(), 9) is None
    found = outcome(run(POOR), both(), 9, broke_off="the run diverged")
    assert found is not None and not found.met and found.why.startswith("the run diverged; ")
    found = outcome(run(GOOD, GOOD), both(), 9, broke_off="the run diverged")
    assert found is not None and found.met


def test_each_epoch_of_a_long_run_is_looked_at_once() -> None:
    """Seen: what one of 100,000 epochs took grew with their number."""
    pursuit = Pursuit(both(), 200_000, ())
    poor = run(POOR)[0]
    began = time.perf_counter()
    for _ in range(100_000):
        pursuit.add(poor)
        assert pursuit.outcome() is None
    assert time.perf_counter() - began < 60
