"""From the times of steps to summaries, against the standard library and against sums by hand."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.record.measurements import RankSteps
from train.step.result import StepParts
from train.trainer import step_summaries
from train.trainer.step_summaries import StepSamples, StepTimes, spread, usual_median

SECONDS = st.floats(1e-6, 1e4)


@given(st.lists(SECONDS, min_size=2, max_size=40))
def test_spread_is_that_of_the_standard_library(values: list[float]) -> None:
    found = spread(values)
    twentieths = statistics.quantiles(values, n=20, method="inclusive")
    assert (found.n, found.mean) == (len(values), pytest.approx(statistics.fmean(values)))
    assert found.median == pytest.approx(statistics.median(values))
    assert (found.p05, found.p95) == (
        pytest.approx(twentieths[0]), pytest.approx(twentieths[-1]),
    )  # fmt: skip


def usual(call_s: float, input_s: float = 0.0) -> StepTimes:
    return StepTimes(input_s, call_s)


def sampled(call_s: float, communication_s: float, update_s: float = 0.0) -> StepTimes:
    return StepTimes(9.0, call_s, StepParts(None, None, communication_s, update_s))


def summary(*epochs: list[StepTimes]) -> RankSteps | None:
    made = StepSamples()
    for steps in epochs:
        made.add(steps)
    return made.summary(3)


def steady(*steps: StepTimes) -> RankSteps | None:
    """Of one epoch after the first."""
    return summary([usual(9.0)], list(steps))


@given(
    st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=30),
    st.lists(st.tuples(SECONDS, st.floats(0, 1)), min_size=1, max_size=30),
)
def test_parts_are_those_of_the_sampled_steps_and_times_those_of_the_others(steps, parts) -> None:
    found = steady(
        *(sampled(call, call * share, 0.125) for call, share in parts),
        *(usual(call, waited) for waited, call in steps),
    )
    assert (found.rank, found.sampled, found.step_s.n) == (3, len(parts), len(steps))
    assert found.step_s.mean == pytest.approx(np.mean([sum(times) for times in steps]))
    assert found.input_s.median == pytest.approx(np.median([waited for waited, _ in steps]))
    both = found.compute_s.mean + found.communication_s.mean
    assert both == pytest.approx(np.mean([call for call, _ in parts]))
    assert found.update_s.mean == 0.125 and found.waiting_s is None


@pytest.mark.parametrize(
    ("call_s", "exposed_s"),
    [(1.1, 0.1), (1.0, 0.0), (0.9, None), (9.0, 0.5)],  # null below, at most the communication
)
def test_what_a_step_lasts_beyond_computing_is_exposed_communication(call_s, exposed_s) -> None:
    found = steady(sampled(1.5, 0.5), usual(call_s, 0.25))
    assert found.exposed_s == (None if exposed_s is None else pytest.approx(exposed_s))
    assert steady(sampled(1.0, 0.0), usual(1.1)).exposed_s == 0, "no rank to wait for"
    assert summary([], [usual(1.1)], [sampled(1.5, 0.5)]).exposed_s is None, "epochs of one step"


def test_steps_are_compared_with_the_sampled_one_of_their_epoch() -> None:
    """The batch grows fourfold, and with it what a step computes."""
    short = [sampled(1.5, 0.5), *[usual(1.2)] * 8]
    long = [sampled(4.5, 0.5), *[usual(4.2)] * 2]
    assert summary([], short, long).exposed_s == pytest.approx(0.2)


def test_the_first_epoch_is_left_out_and_of_the_only_one_the_first_step() -> None:
    first = [usual(9.0), usual(1.0), sampled(2.0, 1.0), usual(1.1)]
    assert summary(first).step_s.mean == pytest.approx(1.05)
    assert summary(first, [usual(3.0), sampled(2.0, 1.0)]).step_s.mean == 3.0
    assert summary(first, [usual(3.0)]) is None, "parts are known of the first epoch only"
    assert steady(sampled(2.0, 1.0)) is None


def test_no_step_has_negative_compute_time() -> None:
    assert steady(sampled(1.0, 1.0000001), usual(1.0)).compute_s.median == 0


def test_what_measuring_costs_is_no_part_of_a_step() -> None:
    found = StepTimes(0.0, 2.0, StepParts(0.25, 0.125, 0.5, 0.1))
    summed = steady(found, usual(1.5))
    assert summed.compute_s.median == 1.25 and summed.exposed_s == 0.25
    assert (summed.waiting_s.median, summed.negotiation_s.median) == (0.25, 0.125)


def test_the_usual_step_is_a_median_of_those_that_were_not_sampled() -> None:
    assert usual_median([sampled(9.0, 1.0)]) is None
    steps = [usual(1.0, 0.5), usual(2.0, 0.5), usual(60.0, 0.5), sampled(9.0, 1.0)]
    assert usual_median(steps) == (2.5, 2.0)


def test_a_long_run_is_summed_up_in_bounded_memory_and_at_once(monkeypatch) -> None:
    """Seen: 100,000 epochs kept millions of rows, and took 20 minutes after the last one."""
    monkeypatch.setattr(step_summaries, "MOST_ROWS", 2000)
    made, draws = StepSamples(), np.random.default_rng(0).random(30_000)
    for draw in draws:
        made.add([usual(1.0 + float(draw)), sampled(1.5, 0.5)])
    assert len(made.usual) == len(made.sampled) == 2000
    began = time.perf_counter()
    found = made.summary(0)
    assert time.perf_counter() - began < 2
    assert found.step_s.median == pytest.approx(1.5, abs=0.05)
    assert found.exposed_s == pytest.approx(0.5, abs=0.05)
