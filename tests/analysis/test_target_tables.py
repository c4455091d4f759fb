"""Time to target with runs that never got there, by hand; the clock of a run over its starts."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from analysis.frames import epochs_frame, runs_frame
from analysis.targets import NO_TARGET, targets_frame, targets_table, targets_view, with_clock
from tests.analysis.builders import config, record
from train.config.run import Target
from train.record.run import RunRecord, TargetOutcome

TARGET = Target(train_accuracy=0.75, validation_accuracy=0.25, within_s=240)


def run(seed: int, epoch: int | None, *, name: str = "naive", **changes: Any) -> RunRecord:
    """A run of ten epochs at most, each of 2 s of training and 0.5 s of validation."""
    asked = config(name, seed=seed, epochs=10, target=TARGET)
    made = {"epoch": epoch, "steps": None, "images": None, "seconds": None, "met": False,
            "why": f"seed {seed} was too slow"}  # fmt: skip
    if epoch is not None:
        made |= {"met": True, "steps": 20 * epoch, "images": 320 * epoch, "seconds": 2.5 * epoch,
                 "why": "held"}  # fmt: skip
    fields = {"target": TargetOutcome(**made), "epoch_changes": {"train_s": 2.0},
              "accuracies": [0.4] * (epoch or 10), "throughput": None}  # fmt: skip
    return record(asked, **{**fields, **changes})


def table(*items: RunRecord) -> pd.DataFrame:
    return targets_table(targets_frame(items, runs_frame(items)), ["naive", "lamb"])


def cells(*items: RunRecord) -> dict[str, str]:
    view = targets_view(table(*items), runs_frame(items))
    (row,) = view.rows
    return dict(zip([column.head for column in view.columns], row, strict=True)) | {
        "notes": " ".join(view.notes)
    }


def test_one_row_per_run_with_what_it_took() -> None:
    items = [run(0, 4, accuracies=[0.4] * 6), run(1, None)]  # what came after epoch 4 is not in
    first, second = (row for _, row in targets_frame(items, runs_frame(items)).iterrows())
    assert (first["epoch"], first["steps"], first["images"]) == (4, 80, 1280)
    assert (first["seconds"], first["train_s"]) == (10.0, 8.0)
    assert first["target"] == "train 0.75 and validation 0.25 held 2 times within 240 s"
    assert not second["met"] and second["why"] == "seed 1 was too slow"
    assert second[["epoch", "steps", "images", "seconds", "train_s"]].isna().all()


@pytest.mark.parametrize(
    ("epochs", "median"),
    [
        ([3, 5, 4], 4),
        ([3, 4], 3.5),
        ([3, 5, None], 5),  # of 3, 5 and infinity; the mean of those that met it would be 4
        ([3, 5, 7, None], 6),
        ([3, None], None),  # halfway between 3 and infinity
        ([3, None, None], None),
        ([None], None),
    ],
)
def test_a_run_that_did_not_meet_it_counts_as_infinity(
    epochs: list[int | None], median: float | None
) -> None:
    found = table(*(run(seed, epoch) for seed, epoch in enumerate(epochs))).iloc[0]
    unmet = epochs.count(None)
    assert (found["n"], found["n_met"]) == (len(epochs), len(epochs) - unmet)
    if median is None:
        assert found["epoch_median"] is pd.NA and found["seconds_median"] is pd.NA
        assert found["median_why"] == (
            f"not met by {unmet} of {len(epochs)} runs: the median is infinite"
        )
    else:
        assert found["epoch_median"] == median
        assert found["steps_median"] == 20 * median
        assert found["seconds_median"] == 2.5 * median
        assert found["train_s_median"] == 2 * median
        assert pd.isna(found["median_why"])


def test_every_run_is_told() -> None:
    found = table(run(2, None), run(0, 3), run(1, 5)).iloc[0]
    assert found["epoch_runs"] == "3 5 inf", "by seed"
    assert found["unmet_why"] == "seed 2 was too slow"


def test_a_diverged_run_did_not_meet_it() -> None:
    gone = run(1, None, status="diverged", target=None, missing={"target": "it diverged first"})
    found = table(run(0, 3), gone).iloc[0]
    assert (found["n"], found["n_met"], found["unmet_why"]) == (2, 1, "it diverged first")
    assert found["epoch_median"] is pd.NA


def test_the_view() -> None:
    found = cells(run(0, 3), run(1, 4))
    assert found["met"] == "2/2"
    assert (found["epochs"], found["steps"]) == ("3.50", "70")
    assert (found["seconds"], found["training s"]) == ("8.75", "7")
    found = cells(run(0, 3), run(1, None))
    assert found["met"] == "1/2 ¹" and found["epochs"] == found["seconds"] == "n/a ²"
    assert "the median is infinite" in found["notes"] and "seed 1 was too slow" in found["notes"]


def test_a_sweep_without_a_target_says_so() -> None:
    items = [record()]
    view = targets_view(table(*items), runs_frame(items))
    assert view.rows == () and view.empty == NO_TARGET and view.intro == ""


def test_conditions_are_apart_and_in_order() -> None:
    found = table(run(0, 3, name="lamb"), run(0, 4), run(1, 5))
    assert found["technique"].tolist() == ["naive", "lamb"]
    assert found["epoch_median"].tolist() == [4.5, 3]


def test_the_clock_of_a_run_goes_on_over_its_starts() -> None:
    items = [record(config(seed=seed, epochs=3), images_per_s=rate) for seed, rate in
             ((0, 100.0), (1, 50.0))]  # fmt: skip
    epochs = epochs_frame(items, runs_frame(items))
    # not in order of time, and the second epoch of another start
    shuffled = epochs.iloc[[3, 2, 0, 5, 1, 4]].assign(attempt=[1, 2, 1, 2, 2, 2])
    found = with_clock(shuffled).sort_values(["seed", "epoch"])
    assert found["images_per_s"].tolist() == pytest.approx([100.0] * 3 + [50.0] * 3)
    assert found["train_s_so_far"].tolist() == pytest.approx([3.2, 6.4, 9.6, 6.4, 12.8, 19.2])
    assert found["seconds_so_far"].tolist() == pytest.approx([3.7, 7.4, 11.1, 6.9, 13.8, 20.7])
    assert with_clock(epochs).drop(columns=list(found.columns[-3:])).equals(epochs)


def test_the_clock_of_no_epoch() -> None:
    empty = with_clock(epochs_frame([], runs_frame([])))
    assert len(empty) == 0 and "train_s_so_far" in empty


def test_an_epoch_that_took_no_time_has_no_rate() -> None:
    items = [record(images_per_s=None, epoch_changes={"train_s": 0.0})]
    found = with_clock(epochs_frame(items, runs_frame(items)))
    assert found["images_per_s"].isna().all()
