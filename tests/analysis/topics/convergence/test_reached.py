"""What conditions reach, against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from analysis.table import Table
from analysis.topics.convergence import reached
from tests.analysis.builders import REASON, config, record, runs_frame, technique
from tests.analysis.builders import cells as row_of
from tests.analysis.planned import sweep
from train.config.schedule import CropFlip, Grow
from train.record.measurements import Sharpness
from train.record.run import RunRecord


def made(*items: RunRecord) -> Table:
    return reached.conditions(sweep(items))


def table(*items: RunRecord) -> pd.DataFrame:
    return made(*items).data


def run(seed: int, accuracy: float | None, **changes: Any) -> RunRecord:
    return record(config(seed=seed), accuracies=[0.2, 0.3, accuracy], **changes)


def cells(*items: RunRecord) -> dict[str, str]:
    return row_of(made(*items))


def test_mean_and_interval_over_seeds() -> None:
    row = table(run(0, 0.4), run(1, 0.5), run(2, 0.6)).iloc[0]
    assert row["validation_accuracy"] == pytest.approx(0.5)
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert row["validation_accuracy_low"] == pytest.approx(0.5 - half)
    assert row["validation_accuracy_high"] == pytest.approx(0.5 + half)
    assert (row["n"], row["diverged"]) == (3, 0)
    assert row["steps"] == 60
    assert row["train_s"] == pytest.approx(3 * 320 / 100)  # 3 epochs at 100 images/s


def test_sharpness_is_shown_where_it_was_measured() -> None:
    """A loss without curvature has no part in a mean of logarithms."""
    assert not [heading for heading in cells(run(0, 0.4)) if "sharp" in heading]
    items = [
        run(seed, 0.4, sharpness=Sharpness(
            images=8, largest=largest, largest_error=0, scaled=scaled, scaled_error=0,
        ))
        for seed, (largest, scaled) in enumerate(((10.0, 3.0), (14.0, 4.0), (0.0, 0.0)))
    ]  # fmt: skip
    # geometric mean, times and by exp(t(0.975, 1) = 12.7062 times half the logarithm of the ratio)
    shown = cells(*items)
    assert shown["sharpness"].startswith("11.8 (1.40 to 100)")
    assert shown["scaled sharpness"].startswith("3.46 (0.557 to 21.5)")


def test_a_diverged_run_is_counted_and_has_no_part_in_a_mean() -> None:
    gone = run(2, 0.9, status="diverged")
    row = table(run(0, 0.4), run(1, 0.6), gone).iloc[0]
    assert row["validation_accuracy"] == pytest.approx(0.5)
    assert (row["validation_accuracy_n"], row["n"], row["diverged_n"]) == (2, 3, 3)
    shown = cells(run(0, 0.4), run(1, 0.6), gone)
    # t(0.975, 1) = 12.7062, sd .1414: ± 1.271, cut where no accuracy can be
    value, mark = shown["validation accuracy"].rsplit(" ", 1)
    assert value == "0.500 (0.000 to 1.000)"
    assert f"{mark} cut at 0 and 1" in shown["notes"]
    assert shown["diverged"] == "1 of 3 (1 to 91 %)"


def test_diverged_runs_are_shown_in_every_row_or_in_none() -> None:
    """Also where all conditions have the same share of them, and where all runs diverged."""
    both = [run(0, 0.5), run(1, 0.5, status="diverged")]
    other = [record(config("lamb", seed=s), status=item.status) for s, item in enumerate(both)]
    assert cells(*both, *other)["diverged"].startswith("1 of 2")
    assert "diverged" not in cells(both[0])
    shown = cells(*(run(s, None, status="diverged") for s in (0, 1)))
    for heading in ("validation accuracy", "steps", "training s"):
        assert shown[heading] == "n/a ¹"
    assert shown["notes"] == "¹ all 2 runs diverged"


def test_train_accuracy_on_changed_images_says_so() -> None:
    crops = technique("naive", augmentation=CropFlip(crop=1, flip="none"))
    items = [record(config(technique=crops, seed=s)) for s in (0, 1)]
    shown = cells(*items)
    assert shown["training accuracy"].startswith("0.500 ")
    assert "cropped, mirrored or cut at random" in shown["notes"]
    assert "cropped" not in cells(record(config()))["notes"]


def test_seconds_of_ranks_that_share_cores_say_so() -> None:
    assert (
        reached.SHARED_CORES in cells(run(0, 0.5, world_changes={"oversubscribed": True}))["notes"]
    )


def test_a_batch_that_grows_shows_both_ends() -> None:
    grows = technique("naive", batch_growth=Grow(milestones=(0.3, 0.7), factor=2, largest=160))
    changes = [{"accumulation": times} for times in (1, 2, 4)]
    shown = cells(record(config(technique=grows), epoch_changes=changes))
    assert shown["global batch"] == "16 → 64"
    assert shown["steps"] == "35"  # 320 / 16 + 320 / 32 + 320 / 64


def test_runs_of_unequal_steps_say_so() -> None:
    short = record(config(seed=1), accuracies=[0.2, 0.3])
    row = table(run(0, 0.4), short).iloc[0]
    assert row["steps"] is pd.NA and row["steps_note"] == "the runs differ: 40 to 60"


def test_an_accuracy_that_is_not_there_has_a_reason_and_no_number() -> None:
    row = table(run(0, 0.4), run(1, 0.6), run(2, None)).iloc[0]
    assert row["validation_accuracy_n"] == 2
    assert "1 of 3 runs lack the value" in row["validation_accuracy_note"]
    shown = cells(run(0, None))
    mark = shown["validation accuracy"].removeprefix("n/a ")
    assert f"{mark} {REASON}" in shown["notes"]
    synthetic = cells(record(config(dataset="synthetic")))
    assert synthetic["validation accuracy"].startswith("n/a")
    assert synthetic["training accuracy"].startswith("n/a")


def test_the_heading_says_what_a_rank_is() -> None:
    def head(*items: RunRecord) -> str:
        (column,) = (c for c in reached.columns(runs_frame(items)) if c.name == "gpus")
        return f"{column.heading}: {column.description}"

    gpu = record(world_changes={"device_kind": "gpu", "device": "NVIDIA H100"})
    assert head(gpu) == "GPUs: one rank per GPU; device: NVIDIA H100"
    mixed = head(gpu, record(config(seed=1)))
    assert mixed.startswith("ranks: ") and "NVIDIA H100 and Test CPU" in mixed
