"""What the report says of the noise scale, against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from analysis.frames import runs_frame
from analysis.noise import noise_frame, noise_table, noise_view
from tests.analysis.builders import config, epoch, record
from train.record.run import NoiseScale, RunRecord

GPUS, BATCH = 2, 32


def noise(**changes: Any) -> NoiseScale:
    fields = {
        "steps": 10, "batch_small": 16, "batch_big": BATCH, "trace": 1.0, "gradient_sq": 1.0,
        "b_simple": None, "low": None, "high": None,
    }  # fmt: skip
    return NoiseScale(**{**fields, **changes})


def measured(value: float, low: float, high: float, **changes: Any) -> NoiseScale:
    return noise(trace=value, b_simple=value, low=low, high=high, **changes)


def censored(low: float | None) -> NoiseScale:
    return noise(interval="censored", low=low)


def too_short() -> NoiseScale:
    return noise(interval="too_few_steps", steps=2)


def run(seed: int, *noises: NoiseScale | None, name: str = "naive", **changes: Any) -> RunRecord:
    """One run; its epochs have these noise scales."""
    asked = config(name, seed=seed, gpus=GPUS, epochs=len(noises))
    found = tuple(
        epoch(i, asked, noise=noise, train_s=3.2) for i, noise in enumerate(noises, start=1)
    )
    return record(asked, epochs=found, throughput=None, **changes)


def frame_of(*items: RunRecord) -> pd.DataFrame:
    return noise_frame(items, runs_frame(items))


def table(*items: RunRecord) -> pd.DataFrame:
    return noise_table(frame_of(*items), ["lamb", "naive"])


def cells(*items: RunRecord) -> dict[str, str]:
    """The only row of the view, by heading."""
    view = noise_view(table(*items), runs_frame(items))
    (row,) = view.rows
    heads = [column.head for column in view.columns]
    return dict(zip(heads, row, strict=True)) | {"notes": " ".join(view.notes)}


def test_one_row_per_epoch_that_measured_it() -> None:
    found = frame_of(run(3, None, measured(50, 40, 60), censored(900.0)))
    assert found["epoch"].tolist() == [2, 3]
    assert found["b_simple"].tolist() == [50, pd.NA]
    assert found["low"].tolist() == [40, 900]
    assert found["censored"].tolist() == [False, True]
    first = found.iloc[0]
    assert (first["technique"], first["gpus"], first["global_batch"]) == ("naive", GPUS, BATCH)
    assert (first["seed"], first["trace"], first["gradient_sq"]) == (3, 50, 1)


def test_geometric_mean_and_interval_over_seeds() -> None:
    items = [run(s, *[measured(v, v / 2, v * 2)] * 3) for s, v in enumerate((60.0, 120.0, 240.0))]
    row = table(*items).iloc[0]
    assert row["last_b_simple"] == pytest.approx(120)
    # t(0.975, 2) = 4.302653; the logarithms are ln 2 apart
    half = 4.302653 * math.log(2) / math.sqrt(3)
    assert row["last_low"] == pytest.approx(120 * math.exp(-half))
    assert row["last_high"] == pytest.approx(120 * math.exp(half))
    shown = cells(*items)
    assert shown["last epoch"] == "epoch 3: 120 [21.4, 671]"
    assert shown["B / B_simple"] == "0.267"
    assert shown["notes"] == ""


def test_first_middle_and_last_epoch() -> None:
    values = (10.0, 20.0, 30.0, 40.0, 50.0)
    shown = cells(run(0, *(measured(v, v - 1, v + 1) for v in values)))
    assert shown["B_simple, first epoch"] == "epoch 1: 10.0 [9.00, 11.0] (n=1)"
    assert shown["middle epoch"] == "epoch 3: 30.0 [29.0, 31.0] (n=1)"
    assert shown["last epoch"] == "epoch 5: 50.0 [49.0, 51.0] (n=1)"


def test_epochs_without_a_noise_scale_are_passed_over() -> None:
    shown = cells(run(0, None, measured(20, 10, 40), None))
    assert shown["B_simple, first epoch"].startswith("epoch 2: 20.0")
    assert shown["last epoch"].startswith("epoch 2: 20.0")


def test_a_censored_run_leaves_a_lower_bound_and_no_mean() -> None:
    items = [run(0, measured(50, 40, 60)), run(1, censored(900.0)), run(2, censored(300.0))]
    row = table(*items).iloc[0]
    assert row["last_b_simple"] is pd.NA
    assert row["last_low"] == 40  # a mean of the others would be of the low ones
    shown = cells(*items)
    assert shown["last epoch"] == "epoch 1: > 40.0 ¹"
    assert shown["B / B_simple"] == "< 0.800"
    assert shown["notes"] == "¹ censored in 2 of 3 runs"


def test_censored_without_any_bound() -> None:
    shown = cells(run(0, censored(None)))
    assert shown["last epoch"] == "epoch 1: n/a ¹"
    assert shown["B / B_simple"] == "n/a ¹"
    assert shown["notes"] == "¹ censored in 1 of 1 run"


def test_epochs_too_short_for_an_interval_say_so() -> None:
    shown = cells(run(0, too_short()))
    assert shown["last epoch"] == "epoch 1: n/a ¹"
    assert shown["notes"].startswith("¹ too few steps in an epoch (2)")


def test_one_of_the_runs_lacks_the_value() -> None:
    shown = cells(run(0, measured(50, 40, 60)), run(1, too_short()))
    assert shown["last epoch"] == "epoch 1: 50.0 [40.0, 60.0] ¹"
    assert shown["notes"] == "¹ 1 of 2 runs lack the value"


def test_no_noise_at_all_has_no_logarithm() -> None:
    shown = cells(run(0, measured(0.0, 0.0, 1e-6)))
    assert shown["last epoch"] == "epoch 1: n/a ¹"


def test_the_ratio_is_with_the_batch_of_its_epoch() -> None:
    grown = measured(50, 40, 60, batch_big=400)
    shown = cells(run(0, measured(50, 40, 60), grown))
    assert shown["B / B_simple"] == "8.00"
    assert shown["global batch"] == "32 → 400"


def test_only_completed_runs_count() -> None:
    items = [run(0, measured(50, 40, 60)), run(1, measured(9000, 1, 1e6), status="diverged")]
    assert len(frame_of(*items)) == 2
    assert cells(*items)["last epoch"] == "epoch 1: 50.0 [40.0, 60.0] (n=1)"


def test_rows_are_not_pooled_over_settings_and_follow_the_manifest() -> None:
    items = [run(0, measured(50, 40, 60)), run(0, measured(70, 60, 80), name="lamb")]
    found = table(*items)
    assert found["technique"].tolist() == ["lamb", "naive"]
    assert found["last_b_simple"].tolist() == [70, 50]


def test_empty() -> None:
    items = [run(0, None, None)]
    view = noise_view(table(*items), runs_frame(items))
    assert view.rows == ()
    assert view.empty == "No completed run measured its gradient noise."
    assert noise_view(table(), runs_frame([])).rows == ()
