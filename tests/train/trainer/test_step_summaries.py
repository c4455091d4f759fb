"""From samples to summaries, against the standard library and against sums done by hand."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import config, epoch
from train.config.plan import EpochPlan
from train.record.target import steady_epochs
from train.step.result import StepParts, StepResult
from train.trainer.step_summaries import (
    StepRow,
    StepSamples,
    Stretch,
    append_steps,
    common,
    keep_steps,
    rank_steps,
    spread,
    step_row,
    throughput,
)

OF = config()
SECONDS = st.floats(1e-6, 1e4)


def percentile(values: list[float], share: float) -> float:
    """Linear interpolation between order statistics (Hyndman and Fan 1996, type 7)."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@given(st.lists(SECONDS, min_size=1, max_size=40))
def test_spread_is_that_of_the_standard_library(values: list[float]) -> None:
    found = spread(values)
    assert found.n == len(values)
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.median == pytest.approx(statistics.median(values))
    assert found.p05 == pytest.approx(percentile(values, 0.05))
    assert found.p95 == pytest.approx(percentile(values, 0.95))


def test_spread_of_nothing_is_an_error() -> None:
    with pytest.raises((ValueError, IndexError)):
        spread([])


@pytest.mark.parametrize(
    ("attempts", "steady"),
    [
        ([], []),
        ([1], []),
        ([1, 1, 1], [2, 3]),
        ([1, 1, 2, 2], [2, 4]),  # a resumed start traces anew
        ([1, 2, 3], []),
        ([2, 2], [2]),
    ],
)
def test_the_first_epoch_of_each_start_is_not_steady(attempts, steady) -> None:
    epochs = [epoch(n + 1, OF, attempt=a) for n, a in enumerate(attempts)]
    assert [e.epoch for e in steady_epochs(epochs)] == steady


def test_throughput_is_images_over_seconds_of_steady_epochs() -> None:
    seconds = {1: 90.0, 2: 2.0, 3: 4.0, 4: 80.0, 5: 1.0}
    attempts = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2}
    epochs = [
        epoch(n, OF, attempt=attempts[n], train_s=seconds[n], images=1000 * n) for n in seconds
    ]
    found = throughput(epochs)
    assert {s.epoch: s.images_per_s for s in found.samples} == {2: 1000, 3: 750, 5: 5000}
    assert found.images_per_s == 1000
    assert found.left_out == (1, 4)


def test_throughput_without_a_steady_epoch_is_unknown_not_zero() -> None:
    found = throughput([epoch(1, OF)])
    assert found.images_per_s is None and found.samples == () and found.left_out == (1,)


def test_an_epoch_that_took_no_time_is_left_out() -> None:
    found = throughput([epoch(1, OF), epoch(2, OF, train_s=0.0), epoch(3, OF, train_s=1.0)])
    assert [s.epoch for s in found.samples] == [3] and found.left_out == (1, 2)


def row(epoch: int, input_s: float, call_s: float, all_reduce_s: float | None, **more) -> StepRow:
    values = {
        "update_s": 0.0, "rate": 0.1, "global_batch": 8, "loss": 1.0, "gradient_sq": 2.0,
        "small_sq": 3.0, "gain": 1.0, "skipped": False,
    }  # fmt: skip
    return StepRow(epoch, input_s, call_s, all_reduce_s, **(values | more))


def samples(*epochs: int) -> StepSamples:
    made = StepSamples()
    for index, number in enumerate(epochs):
        made.add(row(number, 0.1 + index, 2.0 + index, 0.5 + index))
    return made


def test_steps_in_which_the_rank_was_suspended_are_not_steady() -> None:
    made = samples(0, 1, 1)
    made.add(row(1, 600.0, 2.0, 0.5, suspended=True))
    assert [r.input_s for r in made.steady()] == [1.1, 2.1]


def test_a_stretch_in_which_a_rank_was_suspended_took_what_that_rank_says() -> None:
    """The others waited for it, as long as it was away."""
    ran, waited, away = Stretch(4.0, 0.0), Stretch(64.0, 0.0), Stretch(4.1, 60.0)
    assert common(ran, [ran, Stretch(3.9, 0.0)]) == ran, "its own clock, as ever"
    assert common(waited, [waited, away]) == common(away, [waited, away]) == Stretch(4.1, 60.0)
    together = [Stretch(4.0, 60.0), Stretch(4.2, 59.8)]
    assert common(together[1], together) == Stretch(4.0, 60.0)


@pytest.mark.parametrize(
    ("epochs", "kept"),
    [
        ((), ()),
        ((0,), ()),
        ((0, 0, 0), (1, 2)),  # one epoch only: all but the step that traces the graph
        ((0, 0, 1, 1), (2, 3)),
        ((7, 7, 8, 9), (2, 3)),  # a start that was resumed at epoch 7
        ((4, 5), (1,)),
    ],
)
def test_steady_steps_are_those_after_the_first_epoch(epochs, kept) -> None:
    found = samples(*epochs).steady()
    assert [r.input_s for r in found] == pytest.approx([0.1 + index for index in kept])
    assert [r.communication_s for r in found] == pytest.approx([0.5 + index for index in kept])


def whole(epoch: int, input_s: float, call_s: float) -> StepRow:
    """Of a step that was not taken in parts."""
    return row(epoch, input_s, call_s, None, update_s=None)


@given(
    st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=30),
    st.lists(st.tuples(SECONDS, st.floats(0, 1)), min_size=1, max_size=30),
)
def test_parts_are_those_of_the_sampled_steps_and_times_those_of_the_others(steps, parts) -> None:
    sampled = [row(0, 9.0, call, call * share) for call, share in parts]
    found = rank_steps(3, [*sampled, *(whole(0, *times) for times in steps)])
    assert (found.rank, found.sampled, found.step_s.n) == (3, len(parts), len(steps))
    assert found.step_s.mean == pytest.approx(np.mean([sum(times) for times in steps]))
    assert found.input_s.median == pytest.approx(np.median([waited for waited, _ in steps]))
    both = found.compute_s.mean + found.communication_s.mean
    assert both == pytest.approx(np.mean([call for call, _ in parts]))


@pytest.mark.parametrize(
    ("call_s", "exposed_s"),
    [(1.1, 0.1), (1.0, 0.0), (0.9, None), (9.0, 0.5)],  # null below, at most the communication
)
def test_what_a_step_lasts_beyond_computing_is_exposed_communication(call_s, exposed_s) -> None:
    found = rank_steps(0, [row(1, 0.0, 1.5, 0.5), whole(1, 0.25, call_s)])
    assert found.exposed_s == (None if exposed_s is None else pytest.approx(exposed_s))


def test_steps_are_compared_with_the_sampled_one_of_their_epoch() -> None:
    """The batch grows fourfold, and with it what a step computes."""
    short = [row(1, 0.0, 1.5, 0.5), *[whole(1, 0.0, 1.2)] * 8]
    long = [row(2, 0.0, 4.5, 0.5), *[whole(2, 0.0, 4.2)] * 2]
    assert rank_steps(0, short + long).exposed_s == pytest.approx(0.2)
    alone = [row(1, 0.0, 1.0, 0.0), whole(1, 0.0, 1.1)]
    assert rank_steps(0, alone).exposed_s == 0, "no rank to wait for"


def test_the_first_step_of_either_form_is_not_steady() -> None:
    """In a start of one epoch the sampled step is traced in its midst."""
    made = StepSamples()
    for one in (whole(0, 0.0, 9.0), whole(0, 0.0, 1.0), row(0, 0.0, 9.0, 8.0), whole(0, 0.0, 1.1)):
        made.add(one)
    assert [r.call_s for r in made.steady()] == [1.0, 1.1]
    assert rank_steps(0, made.steady()) is None


def test_there_are_no_phases_without_both_kinds_of_steps() -> None:
    assert rank_steps(0, [whole(0, 0.0, 1.0)]) is None
    assert rank_steps(0, [row(0, 0.0, 1.0, 0.5)]) is None


def test_no_step_has_negative_compute_time() -> None:
    found = rank_steps(0, [row(0, 0.0, 1.0, 1.0000001), whole(0, 0.0, 1.0)])
    assert found.compute_s.median == 0


def test_the_update_is_a_part_of_its_own() -> None:
    found = rank_steps(0, [row(0, 0.0, 1.0, 0.25, update_s=0.125), whole(0, 0.0, 1.0)])
    assert found.update_s.median == 0.125


def test_what_measuring_costs_is_no_part_of_a_step() -> None:
    plan = EpochPlan(1, accumulation=1, global_batch=8, steps=4, first_step=4, rate_factor=1.0)
    result = StepResult(
        1.0, 1, 8, 1.0, 1.0, 1.0, False, 0.1, 1.0, None, StepParts(0.25, 0.125, 0.5, 0.1)
    )
    found = step_row(plan, 0.0, 2.0, result, suspended=False)
    assert (found.call_s, found.waiting_s, found.communication_s) == (1.75, 0.25, 0.5)
    summed = rank_steps(0, [found, whole(1, 0.0, 1.5)])
    assert summed.compute_s.median == 1.25 and summed.exposed_s == 0.25
    assert (summed.waiting_s.median, summed.negotiation_s.median) == (0.25, 0.125)


def test_a_sampled_step_counts_for_no_throughput() -> None:
    plain, sampled = epoch(2, OF, train_s=2.0), epoch(3, OF, train_s=2.5)
    sampled = sampled.model_copy(update={"sampled_steps": 1, "sampled_s": 1.0})
    first, second = throughput([epoch(1, OF), plain, sampled]).samples
    assert first.images_per_s == pytest.approx(plain.images / 2)
    assert second.images_per_s == pytest.approx((sampled.images - OF.global_batch) / 1.5)


def test_raw_samples_are_lines_of_json_and_what_is_no_number_is_null(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    broken = row(0, 0.5, 1.0, 0.25, loss=float("nan"), gradient_sq=float("inf"), skipped=True)
    append_steps([broken], file)
    append_steps([row(1, 0.5, 1.0, 0.25)], file)
    first, second = [json.loads(line) for line in file.open()]
    assert first["loss"] is None and first["gradient_sq"] is None and first["skipped"] is True
    assert second["loss"] == 1.0 and second["rate"] == 0.1 and second["global_batch"] == 8


def test_steps_that_are_trained_again_are_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "steps.jsonl"
    keep_steps(file, 0)
    assert file.read_text() == ""
    for number in range(3):
        append_steps([row(number, 0.5, 1.0, 0.25)] * 2, file)
    with file.open("ab") as out:
        out.write(b'{"epoch": 1, "inp\xff')  # the node went down while the rank wrote
    keep_steps(file, 2)
    assert [json.loads(line)["epoch"] for line in file.open()] == [0, 0, 1, 1]
    keep_steps(file, 0)
    assert file.read_text() == ""
