"""The parts of a lost step add up, blames what was injected, and says what it cannot know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.records.columns import SHARED_CORES
from analysis.stats.intervals import ONE_RUN
from analysis.table import Estimate, Row, Table, plain_rows
from analysis.topics.scaling.loss import PARTS as LOSSES
from analysis.topics.scaling.loss import SAMPLED_LONGER, largest_cause, losses
from analysis.topics.topic import Sweep

ABOUT: dict[str, Any] = {
    "status": "completed", "technique": "naive", "technique_label": "naive", "context": "",
    "technique_settings": "{}", "dataset": "digits", "image_size": 8, "model": "cnn",
    "width": 1.0, "shortcuts": True, "epoch_images": pd.NA,
    "pretrained": pd.NA, "data_fraction": 1.0, "partition": "global", "framework": "horovod",
    "deterministic": False, "accumulation": 1, "scaling": "weak", "gpus": 1, "batch_per_rank": 16,
    "global_batch": 16, "device_kind": "cpu", "device": "Test CPU", "cores_per_rank": 1,
    "oversubscribed": False, "step_parts_why": pd.NA,
}  # fmt: skip
PARTS = ("step_s", "input_s", "compute_s", "communication_s", "exposed_s", "waiting_s",
         "negotiation_s")  # fmt: skip


def run(gpus: int, *parts: float | None, **changes: Any) -> dict[str, Any]:
    """``parts`` in the order of PARTS; all ranks compute as fast."""
    row = {**ABOUT, "gpus": gpus, "global_batch": 16 * gpus, "compute_fastest_s": parts[2]}
    return {**row, **dict(zip(PARTS, parts, strict=True)), **changes}


def frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    real = (*PARTS, "compute_fastest_s")
    types = {"step_parts_why": "string", "gradient_bytes": "Int64"}
    made = pd.DataFrame([{"gradient_bytes": 1_000_000, **row} for row in rows])
    return made.astype({**dict.fromkeys(real, "Float64"), **types})


def table(runs: Sequence[dict[str, Any]] | pd.DataFrame) -> Table:
    found = runs if isinstance(runs, pd.DataFrame) else frame(runs)
    found = found.assign(cell_id=[f"cell {at}" for at in range(len(found))], known=True)
    return losses(Sweep(SimpleNamespace(runs=found, planned=found)))  # type: ignore[arg-type]


def rows(runs: Sequence[dict[str, Any]] | pd.DataFrame) -> list[Row]:
    return plain_rows(table(runs).data)


def seconds(row: Row) -> dict[str, float]:
    return {part: row["ideal_s"] * row[part] for part in LOSSES if row[part] is not None}


def test_parts_are_those_of_a_hand_worked_example() -> None:
    """Shown 0.30, of it 0.12 waiting, 0.02 negotiation; step 1.45 = 0.1 + 1.0 + 0.3 + rest 0.05."""
    (row,) = rows([
        run(1, 1.0, 0.04, 0.95, 0.0, 0.0, None, None),
        run(2, 1.45, 0.10, 1.00, 0.5, 0.30, 0.12, 0.02),
    ])  # fmt: skip
    expected = {"input": 0.06, "compute": 0.05, "exposed": 0.16, "waiting": 0.12,
                "negotiation": 0.02, "rest": 0.04}  # fmt: skip
    assert seconds(row) == pytest.approx(expected)
    assert (row["ideal_s"], row["lost"]) == (1.0, pytest.approx(0.45))
    assert row["lost_note"] == ONE_RUN and row["lost_low"] is None


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_parts_add_up_exactly_to_what_is_lost(scaling: str) -> None:
    random = np.random.default_rng(1)
    items = []
    for gpus in (2, 4, 8):
        for _ in range(4):
            parts = random.uniform(0.01, 1, len(PARTS))
            batch = 16 if scaling == "weak" else 64 // gpus
            items.append(run(gpus, *parts, scaling=scaling, batch_per_rank=batch,
                             global_batch=gpus * batch))  # fmt: skip
    runs = frame(items)
    steps = runs.groupby("gpus")["step_s"].mean()
    found = rows(runs)
    assert [(row["gpus"], row["baseline_gpus"]) for row in found] == [(4, 2), (8, 2)]
    for row in found:
        ideal = steps[2] * (1 if scaling == "weak" else 2 / row["gpus"])
        assert row["ideal_s"] == pytest.approx(ideal)
        assert sum(seconds(row).values()) == pytest.approx(steps[row["gpus"]] - ideal, abs=1e-11)


def test_waiting_and_negotiation_are_at_most_what_is_exposed() -> None:
    two, four = (seconds(row) for row in rows([
        run(1, 1.0, 0.0, 1.0, 0.0, 0.0, None, None),
        run(2, 1.1, 0.0, 1.0, 0.9, 0.10, 0.40, 0.30),
        run(4, 1.1, 0.0, 1.0, 0.9, 0.10, 0.04, 0.30),
    ]))  # fmt: skip
    assert (two["waiting"], two["negotiation"], two["exposed"]) == pytest.approx((0.1, 0, 0))
    assert (four["waiting"], four["negotiation"], four["exposed"]) == pytest.approx((0.04, 0.06, 0))


def cause_of(**parts: Estimate) -> str:
    row: dict[str, Any] = {}
    for part in ("lost", *LOSSES):
        row |= parts.get(part, Estimate(None)).columns(part)
    return largest_cause(row)


@pytest.mark.parametrize("lost", [Estimate(-0.01, -0.02, 0.1), Estimate(0.01, -0.001, 0.1)])
def test_nothing_lost_has_no_cause(lost: Estimate) -> None:
    assert cause_of(lost=lost, compute=Estimate(0.1, 0.09, 0.11)) == ""


def test_the_rounding_of_a_sum_is_no_part() -> None:
    """Steps of 0.1 + 0.2 s are 3e-17 s longer than 0.3 s."""
    items = [run(1, 0.3 + s, 0.1, 0.2 + s, 0.0, 0.0, None, None) for s in (0, 0.001)]
    items += [run(2, 0.4 + s, 0.1, 0.3 + s, 0.0, 0.0, 0.0, 0.0) for s in (0, 0.001)]
    found = table(items)
    assert (found.data["rest"] == 0).all() and found.data["rest_low"].isna().all()
    (cells,) = found.shown().rows
    assert "computing, 100 % of all that lengthens the step" in cells


@pytest.mark.parametrize(("high", "decided"), [(0.12, False), (0.01, True), (None, True)])
def test_a_part_that_may_be_larger_leaves_it_undecided(high: float | None, decided: bool) -> None:
    """Also where its mean is below 0. Without an interval runs do not differ in it."""
    least = None if high is None else -0.2
    found = cause_of(lost=Estimate(0.1, 0.05, 0.15), compute=Estimate(0.1, 0.08, 0.12),
                     waiting=Estimate(-0.001, least, high))  # fmt: skip
    assert found.startswith("computing, 100 %" if decided else "undecided")


def test_records_without_waiting_keep_it_in_communication() -> None:
    (row,) = rows([
        run(1, 1.0, 0.05, 0.95, 0.0, 0.0, None, None),
        run(2, 1.4005, 0.10, 1.00, 0.3, 0.3, None, None, compute_fastest_s=0.98),
    ])  # fmt: skip
    expected = {"input": 0.05, "compute": 0.03, "communication": 0.32, "rest": 0.0005}
    assert seconds(row) == pytest.approx(expected)
    assert row["why"] is None


def test_no_exposed_time_is_said_with_its_reason() -> None:
    why = "steps of one call save more than their communication shows"
    (row,) = rows([
        run(1, 1.0, 0.0, 1.0, 0.0, 0.0, None, None),
        run(2, 0.9, 0.0, 1.1, 0.3, None, 0.01, 0.01, step_parts_why=why),
        run(2, 1.2, 0.0, 1.1, 0.3, 0.1, 0.01, 0.01),
    ])  # fmt: skip
    expected = {"input": 0.0, "compute": 0.1, "waiting": 0.01, "rest": -0.06}
    assert seconds(row) == pytest.approx(expected)
    assert why in row["why"]


def test_shared_cores_are_refused_and_unusable_runs_left_out() -> None:
    two, four = rows([
        run(1, 1.0, 0.0, 1.0, 0.0, 0.0, None, None),
        run(2, 1.2, 0.0, 1.0, 0.2, 0.2, 0.1, 0.0),
        run(2, 9.0, 0.0, 1.0, 8.0, 8.0, 0.1, 0.0, status="diverged"),
        run(4, 1.9, 0.0, 1.5, 0.4, 0.4, 0.1, 0.0, oversubscribed=True),
    ])  # fmt: skip
    assert sum(seconds(two).values()) == pytest.approx(0.2)
    assert four["why"] == SHARED_CORES and seconds(four) == {} and largest_cause(four) == ""


def test_the_interval_has_the_uncertainty_of_the_ideal_step_in_it() -> None:
    """Welch's, of the linear part of the ratio (delta method), strong scaling."""
    random = np.random.default_rng(2)
    base, more = 1 + 0.02 * random.normal(size=4), 0.7 + 0.05 * random.normal(size=5)
    sent = 0.2 + 0.02 * random.normal(size=5)
    strong: dict[str, Any] = {"scaling": "strong", "global_batch": 64}
    items = [run(1, t, 0.0, t - 0.1, 0.0, 0.0, None, None, **strong) for t in base]
    items += [run(2, t, 0.0, t - s, s, s, 0.1, 0.0, **strong)
              for t, s in zip(more, sent, strict=True)]  # fmt: skip
    (row,) = rows(items)
    part, part_0, ideal = more - sent, base - 0.1, base.mean() / 2
    share = (part.mean() - part_0.mean() / 2) / ideal
    assert row["compute"] == pytest.approx(share)
    cov = np.cov(part_0, base)
    variances = (part.var(ddof=1) / ideal**2 / 5,
                 (cov[0, 0] + share**2 * cov[1, 1] + 2 * share * cov[0, 1]) / base.mean() ** 2 / 4,
                 )  # fmt: skip
    df = sum(variances) ** 2 / (variances[0] ** 2 / 4 + variances[1] ** 2 / 3)
    half = stats.t.ppf(0.975, df) * math.sqrt(sum(variances))
    assert (row["compute_low"], row["compute_high"]) == pytest.approx((share - half, share + half))
    assert row["n"] == 5


def test_an_empty_frame_gives_an_empty_table() -> None:
    assert rows([run(1, 1.0, 0.0, 1.0, 0.0, 0.0, None, None, status="failed")]) == []


def test_small_steps_whose_sampled_ones_compute_longer_say_so() -> None:
    """Steps of one call save what a sampled one pays."""
    items = [run(1, 0.008, 0.0, 0.016, 0.0, 0.0, None, None),
             run(2, 0.010, 0.0, 0.007, 0.004, 0.003, 0.001, 0.001)]  # fmt: skip
    (row,) = rows(items)
    assert row["why"] == SAMPLED_LONGER
    assert row["lost"] == pytest.approx(0.25)
