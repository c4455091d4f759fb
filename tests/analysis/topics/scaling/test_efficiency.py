"""Efficiency against hand-worked values, and every case in which there must be none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.records.columns import SHARED_CORES
from analysis.stats.intervals import ONE_RUN
from analysis.table import Table
from analysis.topics.scaling import efficiency
from tests.analysis.builders import REASON, config, rank_steps, record, technique
from tests.analysis.planned import sweep
from train.record.run import RunRecord


def run(gpus: int, rate: float | None, seed: int = 0, **changes: Any) -> RunRecord:
    keep = ("world_changes", "status", "wall_s", "steps", "accuracies", "attempts")
    rest = {name: changes.pop(name) for name in keep if name in changes}
    return record(config(gpus=gpus, seed=seed, **changes), images_per_s=rate, **rest)


def made(*items: RunRecord) -> Table:
    return efficiency.throughputs(sweep(items))


def table(*items: RunRecord) -> pd.DataFrame:
    return made(*items).data


def by_ranks(*items: RunRecord) -> dict[int, pd.Series[Any]]:
    return {int(row["gpus"]): row for _, row in table(*items).iterrows()}


def test_speedup_and_efficiency_by_hand() -> None:
    rows = by_ranks(run(1, 100.0), run(2, 180.0), run(4, 300.0))
    assert rows[2]["speedup"] == pytest.approx(1.8)
    assert rows[2]["efficiency"] == pytest.approx(0.9)
    assert rows[4]["speedup"] == pytest.approx(3.0)
    assert rows[4]["efficiency"] == pytest.approx(0.75)
    assert [rows[n]["n0"] for n in (1, 2, 4)] == [1, 1, 1]
    assert (rows[1]["efficiency"], rows[1]["n0"]) == (1.0, 1)
    assert rows[4]["efficiency_note"] == ONE_RUN
    assert rows[4]["efficiency_low"] is pd.NA


def test_the_baseline_is_the_smallest_count_measured() -> None:
    rows = by_ranks(run(2, 200.0), run(8, 640.0))
    assert rows[8]["n0"] == 2
    assert rows[8]["speedup"] == pytest.approx(3.2)
    assert rows[8]["efficiency"] == pytest.approx(640 / (8 / 2 * 200))


def test_interval_as_welch_on_logarithms() -> None:
    one, four = [100.0, 104.0, 98.0], [310.0, 300.0, 305.0]
    rows = by_ranks(
        *(run(1, r, s) for s, r in enumerate(one)), *(run(4, r, s) for s, r in enumerate(four))
    )
    test = stats.ttest_ind(np.log(four), np.log(one), equal_var=False)
    low, high = test.confidence_interval(0.95)
    row = rows[4]
    assert row["efficiency_low"] == pytest.approx(math.exp(low) / 4, rel=1e-9)
    assert row["efficiency_high"] == pytest.approx(math.exp(high) / 4, rel=1e-9)
    assert row["speedup_high"] == pytest.approx(math.exp(high), rel=1e-9)
    assert row["images_per_s"] == pytest.approx(stats.gmean(four))
    one_sample = stats.ttest_1samp(np.log(four), 0).confidence_interval(0.95)
    assert row["images_per_s_low"] == pytest.approx(math.exp(one_sample.low), rel=1e-9)
    assert row["images_per_s_high"] == pytest.approx(math.exp(one_sample.high), rel=1e-9)
    assert row["efficiency_note"] is pd.NA


def test_oversubscribed_ranks_have_no_efficiency_and_a_flag() -> None:
    shared = {"oversubscribed": True}
    items = (run(1, 100.0), run(4, 120.0, world_changes=shared))
    row = by_ranks(*items)[4]
    assert row["oversubscribed"]
    assert (row["speedup"], row["efficiency"]) == (pd.NA, pd.NA)
    assert row["efficiency_note"] == SHARED_CORES
    assert any(SHARED_CORES in note for note in made(*items).shown().notes)


def test_an_oversubscribed_baseline_is_none() -> None:
    row = by_ranks(run(2, 100.0, world_changes={"oversubscribed": True}), run(4, 200.0))[4]
    assert row["efficiency"] is pd.NA
    assert row["efficiency_note"] == "the baseline's 2 ranks share cores"


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_per_rank": 8},
        {"model": "cnn"},
        {"dataset": "mnist"},
        {"data_fraction": 0.5},
        {"scaling": "strong"},
        {"technique": technique("naive", base_lr=0.3)},
        {"framework": "multi_worker_mirrored"},
        {"accumulation": 2},
        {"width": 2.0},
        {"shortcuts": False},
        {"steps_per_epoch": 1},
        {"world_changes": {"device": "Other CPU"}},
        {"world_changes": {"cores_per_rank": 2}},
    ],
)
def test_what_differs_is_no_baseline(changes: dict) -> None:
    one = {"model": "resnet_mini"}
    row = by_ranks(run(1, 100.0, **one), run(4, 400.0, **(one | changes)))[4]
    assert row["efficiency"] is pd.NA and row["n0"] is pd.NA
    assert row["efficiency_note"] == efficiency.NO_BASELINE


def test_another_technique_is_no_baseline() -> None:
    other = record(config("lamb", gpus=4), images_per_s=400.0)
    found = table(run(1, 100.0), other)
    assert found["efficiency_note"].tolist() == [efficiency.ONE_COUNT] * 2


def test_strong_scaling_keeps_the_global_batch() -> None:
    items = [run(g, r, scaling="strong", batch_per_rank=16 // g) for g, r in ((1, 100), (4, 300))]
    assert by_ranks(*items)[4]["efficiency"] == pytest.approx(0.75)
    mixed = by_ranks(items[0], run(4, 300, scaling="strong", batch_per_rank=16))[4]
    added = by_ranks(run(1, 100, scaling="strong", batch_per_rank=4, accumulation=4), items[1])[4]
    assert {mixed["efficiency_note"], added["efficiency_note"]} == {efficiency.NO_BASELINE}


def test_cores_do_not_matter_where_gpus_work() -> None:
    worlds = [{"device_kind": "gpu", "device": "H100", "cores_per_rank": c} for c in (8, 4)]
    rows = by_ranks(run(1, 100.0, world_changes=worlds[0]), run(2, 190.0, world_changes=worlds[1]))
    assert rows[2]["efficiency"] == pytest.approx(0.95)


def test_the_mode_is_said_once() -> None:
    items = [run(1, 100.0), run(2, 180.0, scaling="strong", batch_per_rank=8)]
    assert [row[:2] for row in made(*items).shown().rows] == [
        ("naive", "weak, 16 a rank"), ("naive", "strong, 16"),
    ]  # fmt: skip


def test_run_length_does_not_matter_for_throughput_but_for_the_time() -> None:
    rows = by_ranks(run(1, 100.0), run(2, 180.0), run(2, 182.0, seed=1, epochs=4))
    assert rows[2]["n"] == 2
    assert rows[2]["end_to_end_s"] is pd.NA
    assert rows[2]["end_to_end_s_note"] == "the runs differ in epochs"
    assert rows[1]["end_to_end_s"] == pytest.approx(60)


def test_diverged_runs_are_counted_and_not_averaged() -> None:
    rows = by_ranks(run(1, 100.0), run(2, 180.0), run(2, 999.0, seed=1, status="diverged"))
    assert (rows[2]["n"], rows[2]["n_diverged"]) == (1, 1)
    assert rows[2]["images_per_s"] == pytest.approx(180.0)
    gone = by_ranks(run(1, 100.0), run(2, 999.0, status="diverged"))[2]
    assert gone["images_per_s"] is pd.NA
    assert gone["efficiency_note"] == gone["end_to_end_s_note"] == "the only run diverged"


def test_no_throughput_gives_its_reason() -> None:
    row = by_ranks(run(1, 100.0), run(2, None))[2]
    assert row["images_per_s_note"] == REASON
    assert row["efficiency_note"] == REASON


def test_a_restart_is_said_beside_the_time() -> None:
    twice = record().attempts * 2
    row = by_ranks(run(1, 100.0, attempts=twice))[1]
    assert row["end_to_end_s_note"] == f"{ONE_RUN}; 1 of 1 runs were restarted"


def test_a_run_without_throughput_is_counted_not_hidden() -> None:
    row = by_ranks(run(1, 100.0), run(1, 104.0, seed=1), run(1, None, seed=2))[1]
    assert row["images_per_s_n"] == 2
    assert row["images_per_s_note"] == f"1 of 3 runs lack the value: {REASON}"


def test_the_shares_of_a_step_are_means_over_runs() -> None:
    shares = [(rank_steps(0, 1.0, 0.1, 0.2),), (rank_steps(0, 1.0, 0.3, 0.4),)]
    row = by_ranks(*(run(1, 100.0, seed=s, steps=steps) for s, steps in enumerate(shares)))[1]
    assert row["communication_share"] == pytest.approx(0.3)
    assert row["input_share"] == pytest.approx(0.2)


def test_runs_that_a_share_lacks_are_counted_beside_it_alone() -> None:
    """The exposed time is unknown where it is shortest; the wait for input is known of all."""
    short = rank_steps(0, 1.0, 0.1, 0.2).model_copy(update={"sampled": 3})
    lacking = record(config(seed=1), steps=(short,), missing={"steps.exposed_s": "too short"})
    table = made(run(1, 100.0), lacking)
    row = table.data.iloc[0]
    assert row["step_shares_note"] == "1 of 2 runs lack the value: too short"
    shown = table.shown()
    at = [column.name for column in shown.columns]
    cells = [shown.rows[0][at.index(f"{name}_share")] for name in ("communication", "input")]
    assert "\u00a0" in cells[0] and "\u00b9" not in cells[1] and cells[1] == "10 %"
    assert made(lacking).data["step_shares_note"].tolist() == ["too short"]


def test_a_baseline_is_shown_as_such() -> None:
    shown = made(run(1, 100.0), run(2, 150.0), run(2, 150.0, seed=1)).shown()
    headings = [column.heading for column in shown.columns]
    cells = [row[headings.index("efficiency")] for row in shown.rows]
    assert [cell.split("\u00a0")[0] for cell in cells] == ["1.00 (baseline)", "0.75"]


def test_one_row_and_none() -> None:
    (row,) = made(run(1, 100.0)).data["efficiency_note"]
    assert row == efficiency.ONE_COUNT
    assert made().shown().rows == ()


def test_end_to_end_has_the_interval_of_the_logarithm() -> None:
    seconds = np.array([60.0, 100.0, 400.0])
    row = by_ranks(*(run(1, 100.0, seed=n, wall_s=s) for n, s in enumerate(seconds)))[1]
    ends = np.exp(stats.ttest_1samp(np.log(seconds), 0).confidence_interval(0.95))
    assert (row["end_to_end_s_low"], row["end_to_end_s_high"]) == pytest.approx(tuple(ends))
    assert row["end_to_end_s"] == pytest.approx(stats.gmean(seconds))
    (column,) = (column for column in made().columns if column.name == "end_to_end_s")
    assert "geometric mean" in column.description
