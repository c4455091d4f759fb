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
from tests.analysis.builders import REASON, config, record, technique
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
    """Against the smallest count measured, here of two."""
    rows = by_ranks(run(2, 200.0), run(4, 360.0), run(8, 600.0))
    assert [rows[n]["speedup"] for n in (2, 4, 8)] == pytest.approx([1, 1.8, 3])
    assert [rows[n]["efficiency"] for n in (2, 4, 8)] == pytest.approx([1, 0.9, 0.75])
    assert [rows[n]["n0"] for n in (2, 4, 8)] == [2, 2, 2]
    assert rows[8]["efficiency_note"] == ONE_RUN
    assert rows[8]["efficiency_low"] is pd.NA


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


def test_what_each_added_rank_gives_is_against_the_next_smaller_count() -> None:
    two, six = [180.0, 184.0, 178.0], [310.0, 300.0, 305.0]
    shared = {"oversubscribed": True}
    rows = by_ranks(
        run(1, 100.0), run(3, 190.0, world_changes=shared),
        *(run(2, r, s) for s, r in enumerate(two)), *(run(6, r, s) for s, r in enumerate(six)),
    )  # fmt: skip
    assert [rows[n]["before"] for n in (1, 2, 3, 6)] == [pd.NA, 1, pd.NA, 2]
    assert rows[2]["marginal"] == pytest.approx(stats.gmean(two) / 100 - 1)
    test = stats.ttest_ind(np.log(six), np.log(two), equal_var=False)
    low, high = test.confidence_interval(0.95)
    row = rows[6]
    assert row["marginal"] == pytest.approx((stats.gmean(six) / stats.gmean(two) - 1) / 2)
    assert row["marginal_low"] == pytest.approx((math.exp(low) - 1) / 2)
    assert row["marginal_high"] == pytest.approx((math.exp(high) - 1) / 2)
    assert (rows[1]["marginal"], rows[3]["marginal_note"]) == (pd.NA, SHARED_CORES)


def test_a_baseline_gains_nothing_over_the_rows_of_another_series() -> None:
    items = [run(k, 100.0 * k, batch_per_rank=batch) for batch in (8, 16) for k in (1, 2)]
    baselines = table(*items).query("gpus == 1")
    assert len(baselines) == 2
    assert baselines[["before", "marginal", "marginal_note"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("shares", "why"), [(4, SHARED_CORES), (2, "the baseline's 2 ranks share cores")]
)
def test_where_ranks_share_cores_there_is_no_efficiency(shares: int, why: str) -> None:
    items = [run(n, 50.0 * n, world_changes={"oversubscribed": n == shares}) for n in (2, 4)]
    row = by_ranks(*items)[4]
    assert (row["speedup"], row["efficiency"]) == (pd.NA, pd.NA) and row["efficiency_note"] == why
    assert any(why in note for note in made(*items).shown().notes)


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
    alone = made(run(1, 100.0), run(1, 90.0, batch_per_rank=32)).shown()
    assert "efficiency" not in [column.name for column in alone.columns], "n/a in all rows"


def test_strong_scaling_keeps_the_global_batch() -> None:
    items = [run(g, r, scaling="strong", batch_per_rank=16 // g) for g, r in ((1, 100), (4, 300))]
    assert by_ranks(*items)[4]["efficiency"] == pytest.approx(0.75)
    assert made(*items).shown().rows[0][:2] == ("naive", "strong, 16")
    mixed = by_ranks(items[0], run(4, 300, scaling="strong", batch_per_rank=16))[4]
    added = by_ranks(run(1, 100, scaling="strong", batch_per_rank=4, accumulation=4), items[1])[4]
    assert {mixed["efficiency_note"], added["efficiency_note"]} == {efficiency.NO_BASELINE}


def test_cores_do_not_matter_where_gpus_work() -> None:
    worlds = [{"device_kind": "gpu", "device": "H100", "cores_per_rank": c} for c in (8, 4)]
    rows = by_ranks(run(1, 100.0, world_changes=worlds[0]), run(2, 190.0, world_changes=worlds[1]))
    assert rows[2]["efficiency"] == pytest.approx(0.95)


def test_run_length_does_not_matter_for_throughput() -> None:
    assert by_ranks(run(2, 180.0), run(2, 182.0, seed=1, epochs=4))[2]["n"] == 2


def test_diverged_runs_are_not_averaged() -> None:
    rows = by_ranks(run(1, 100.0), run(2, 180.0), run(2, 999.0, seed=1, status="diverged"))
    assert rows[2]["n"] == 1
    assert rows[2]["images_per_s"] == pytest.approx(180.0)
    gone = by_ranks(run(1, 100.0), run(2, 999.0, status="diverged"))[2]
    assert gone["images_per_s"] is pd.NA
    assert gone["efficiency_note"] == "the only run diverged"


def test_no_throughput_gives_its_reason() -> None:
    row = by_ranks(run(1, 100.0), run(2, None))[2]
    assert row["images_per_s_note"] == REASON
    assert row["efficiency_note"] == REASON
