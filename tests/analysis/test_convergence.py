"""The numbers of the course's table against values worked out by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from analysis.convergence import convergence_table
from analysis.frames import runs_frame
from analysis.scaling import scaling_table
from analysis.tables import convergence_view
from tests.analysis.builders import REASON, config, record, technique
from train.config.schedule import CropFlip, Grow

ORDER = ["naive", "lamb"]


def table(*items) -> pd.DataFrame:
    runs = runs_frame(items)
    return convergence_table(runs, ORDER, scaling_table(runs, ORDER))


def run(seed: int, accuracy: float | None, **changes):
    return record(config(seed=seed), accuracies=[0.2, 0.3, accuracy], **changes)


def cells(*items) -> dict[str, str]:
    """The only row of the view, by heading."""
    view = convergence_view(table(*items), runs_frame(items))
    (row,) = view.rows
    return dict(zip([column.head for column in view.columns], row, strict=True)) | {
        "notes": " ".join(view.notes)
    }


def test_mean_and_interval_over_seeds() -> None:
    row = table(run(0, 0.4), run(1, 0.5), run(2, 0.6)).iloc[0]
    assert row["validation_accuracy_mean"] == pytest.approx(0.5)
    assert row["validation_accuracy_sd"] == pytest.approx(0.1)
    assert row["validation_accuracy_half_width"] == pytest.approx(4.302653 * 0.1 / math.sqrt(3))
    assert (row["n"], row["n_diverged"], row["seeds"]) == (3, 0, "0 1 2")
    assert row["steps"] == 60
    assert row["train_s_mean"] == pytest.approx(3 * 320 / 100)  # 3 epochs at 100 images/s


def test_a_diverged_run_is_in_the_mean_of_all_and_not_of_survivors() -> None:
    gone = run(2, 0.9, status="diverged")
    row = table(run(0, 0.4), run(1, 0.6), gone).iloc[0]
    assert row["validation_accuracy_mean"] == pytest.approx(0.5)
    assert row["validation_accuracy_n"] == 2
    assert row["scored_accuracy_mean"] == pytest.approx((0.4 + 0.6 + 0.1) / 3)
    assert (row["n"], row["n_diverged"]) == (3, 1)
    shown = cells(run(0, 0.4), run(1, 0.6), gone)
    # t(0.975, 1) = 12.7062, sd .1414: 1.271;  t(0.975, 2) = 4.3027, sd .2517: 0.625
    assert shown["validation accuracy"] == "0.500 ± 1.271; all: 0.367 ± 0.625"
    assert shown["diverged"] == "1/3"


def test_all_diverged_has_no_survivor_and_says_so() -> None:
    shown = cells(*(run(s, None, status="diverged") for s in (0, 1)))
    assert shown["validation accuracy"] == "n/a ¹; all: 0.100 ± 0.000"
    assert shown["steps"] == "n/a ¹"
    assert shown["training s"] == "n/a ¹"
    assert shown["notes"] == "¹ all 2 runs diverged"


def test_one_run_has_no_interval() -> None:
    row = table(run(0, 0.4)).iloc[0]
    assert row["validation_accuracy_half_width"] is pd.NA
    assert row["validation_accuracy_why"] == "n=1"
    assert cells(run(0, 0.4))["validation accuracy"] == "0.400 (n=1)"


def test_no_accuracy_is_na_with_the_reason_and_no_number() -> None:
    items = [record(config(seed=s), accuracies=[None] * 3) for s in (0, 1)]
    assert table(*items).iloc[0]["validation_accuracy_why"] == REASON
    shown = cells(*items)
    assert shown["validation accuracy"] == "n/a ¹"
    assert shown["notes"] == f"¹ {REASON} ² only one rank count measured"


def test_synthetic_data_never_show_a_number() -> None:
    shown = cells(record(config(dataset="synthetic")))
    assert shown["validation accuracy"].startswith("n/a")
    assert shown["train acc"].startswith("n/a")


def test_efficiency_is_that_of_the_scaling_table() -> None:
    one, two = (record(config(gpus=g), images_per_s=rate) for g, rate in ((1, 100.0), (2, 150.0)))
    found = table(two, one)
    assert found["gpus"].tolist() == [1, 2]
    assert found["efficiency"].tolist() == pytest.approx([1.0, 0.75])
    view = convergence_view(found, runs_frame([one, two]))
    assert [row[-1] for row in view.rows] == ["1.00 (baseline)", "0.75 (n=1)"]


def test_train_accuracy_on_changed_images_says_so() -> None:
    crops = technique("naive", augmentation=CropFlip(crop=1, flip="none"))
    shown = cells(record(config(technique=crops)))
    assert shown["train acc"] == "0.500 ¹"
    assert "cropped, mirrored or cut at random" in shown["notes"]
    assert cells(record(config()))["train acc"] == "0.500"


def test_a_batch_that_grows_shows_both_ends() -> None:
    grows = technique("naive", batch_growth=Grow(milestones=(0.3, 0.7), factor=2, largest=160))
    changes = [{"accumulation": times} for times in (1, 2, 4)]
    shown = cells(record(config(technique=grows), epoch_changes=changes))
    assert shown["global batch"] == "16 → 64"
    assert shown["steps"] == "35"  # 320 / 16 + 320 / 32 + 320 / 64


def test_a_run_without_the_value_is_counted_not_hidden() -> None:
    row = table(run(0, 0.4), run(1, 0.6), run(2, None)).iloc[0]
    assert row["validation_accuracy_n"] == 2
    assert row["validation_accuracy_why"] == "1 of 3 runs lack the value"


def test_rows_are_not_pooled_over_settings() -> None:
    other = record(config(technique=technique("naive", base_lr=0.5), seed=1))
    assert table(run(0, 0.4), other)["n"].tolist() == [1, 1]


def test_the_heading_says_what_a_rank_is() -> None:
    def head(*items) -> str:
        view = convergence_view(table(*items), runs_frame(items))
        return view.columns[0].head + ": " + view.columns[0].about

    gpu = {"device_kind": "gpu", "device": "NVIDIA H100"}
    assert head(record(world_changes=gpu)) == "GPUs: one rank per GPU; device: NVIDIA H100"
    assert head(record()).startswith("ranks: groups of CPU cores, not GPUs: 1 core each")
    mixed = head(record(world_changes=gpu), record(config(seed=1)))
    assert mixed.startswith("ranks: ")
    assert "NVIDIA H100 and Test CPU" in mixed


def test_empty() -> None:
    view = convergence_view(table(), runs_frame([]))
    assert view.rows == ()
    assert view.empty == "No usable run."
