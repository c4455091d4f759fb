"""What a technique keeps when the batch grows: smallest against largest batch, over seeds."""

from __future__ import annotations

import pandas as pd
import pytest
from scipy import stats

from analysis.frames import runs_frame
from analysis.larger_batch import larger_batch_table, larger_batch_view
from tests.analysis.builders import config, record, technique
from train.config.run import Target

SMALL, LARGE = [0.60, 0.62, 0.61], [0.50, 0.55, 0.53]


def arm(accuracies, name: str = "naive", diverged: int = 0, **changes):
    """Runs at one condition; the first ``diverged`` of them diverge."""
    return [
        record(
            config(name, **{"seed": seed, **changes}),
            accuracies=[0.1, 0.2, accuracy],
            **({"status": "diverged"} if seed < diverged else {}),
        )
        for seed, accuracy in enumerate(accuracies)
    ]


def kept(*arms, techniques=("naive", "lamb")) -> pd.DataFrame:
    return larger_batch_table(runs_frame([run for runs in arms for run in runs]), techniques)


def test_the_change_and_its_interval_are_those_of_scipy() -> None:
    row = kept(arm(SMALL), arm(LARGE, accumulation=4)).iloc[0]
    low, high = stats.ttest_ind(LARGE, SMALL, equal_var=False).confidence_interval(0.95)
    assert row["difference"] == pytest.approx(sum(LARGE) / 3 - sum(SMALL) / 3)
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((low, high))
    assert (row["accuracy_small"], row["accuracy_large"]) == pytest.approx((0.61, 0.58 - 0.16 / 3))
    half = stats.t.ppf(0.975, 2) * stats.tstd(SMALL) / 3**0.5
    assert row["half_width_small"] == pytest.approx(half)
    assert (row["global_batch_small"], row["global_batch_large"]) == (16, 64)
    assert (row["steps_small"], row["steps_large"]) == (60, 15)
    assert (row["accumulation_small"], row["accumulation_large"]) == (1, 4)
    assert row["context"] == "", "what makes the batch is said in columns of its own"
    assert row["why"] is pd.NA


def test_only_the_two_ends_count_and_only_of_one_workload() -> None:
    found = kept(
        arm(SMALL), arm([0.9, 0.9], gpus=2), arm(LARGE, gpus=4),
        arm([0.3, 0.31], epochs=6), arm([0.2, 0.21], epochs=6, gpus=2),
        arm([0.7, 0.71], "lamb"),
    )  # fmt: skip
    assert found["technique"].tolist() == ["naive", "naive"], "lamb has one batch"
    assert found["global_batch_large"].tolist() == [64, 32]
    assert found["difference"].tolist() == pytest.approx([-0.25 / 3, -0.1])
    assert found["context"].tolist() == ["3 epochs", "6 epochs"]


def test_one_batch_reached_in_two_ways_is_of_the_ranks_that_have_both() -> None:
    """Where the ranks need not differ, nothing but the batch does."""
    two = {"gpus": 2, "scaling": "strong"}
    one = {"gpus": 1, "scaling": "strong"}
    row = kept(
        arm([0.1, 0.1], batch_per_rank=32, **one), arm([0.2, 0.2], batch_per_rank=64, **one),
        arm(SMALL, batch_per_rank=16, **two), arm(LARGE, batch_per_rank=32, **two),
        arm([0.3, 0.3], batch_per_rank=16, gpus=4, scaling="strong"),
    ).iloc[0]  # fmt: skip
    assert (row["gpus_small"], row["gpus_large"]) == (2, 2)
    assert (row["n_small"], row["n_large"]) == (3, 3)
    assert row["accuracy_large"] == pytest.approx(sum(LARGE) / 3)


def test_else_the_smallest_is_of_the_fewest_ranks_and_the_largest_of_the_most() -> None:
    row = kept(arm(SMALL), arm([0.1, 0.1], gpus=4), arm(LARGE, gpus=8, batch_per_rank=8)).iloc[0]
    assert (row["gpus_small"], row["gpus_large"], row["n_large"]) == (1, 8, 3)


def test_a_diverged_run_counts_as_chance() -> None:
    row = kept(arm(SMALL), arm(LARGE, gpus=4, diverged=1)).iloc[0]
    assert row["n_diverged_large"] == 1
    assert row["accuracy_large"] == pytest.approx((0.1 + 0.55 + 0.53) / 3)
    runs = runs_frame([*arm(SMALL), *arm(LARGE, gpus=4, diverged=1)])
    (shown,) = larger_batch_view(larger_batch_table(runs, ["naive"]), runs).rows
    assert shown[6].endswith("(1 diverged)") and "diverged" not in shown[5]


def test_what_cannot_be_compared_says_why() -> None:
    assert kept(arm([0.6]), arm([0.5], gpus=2)).iloc[0]["why"] == "n=1"
    target = Target(validation_accuracy=0.9)
    row = kept(arm(SMALL, target=target), arm(LARGE, gpus=4, target=target)).iloc[0]
    assert row["difference"] is pd.NA and "target" in row["why"]
    random = kept(arm(SMALL, dataset="synthetic"), arm(LARGE, dataset="synthetic", gpus=4)).iloc[0]
    assert random["difference"] is pd.NA and "random labels" in random["why"]


def test_unequal_budgets_are_named() -> None:
    """320 images are 1 batch of 192, so a third of each epoch is left out."""
    row = kept(arm(SMALL), arm(LARGE, accumulation=12)).iloc[0]
    assert "0.6 times the images of the smaller batch" in row["why"]


def test_what_the_reader_sees() -> None:
    runs = runs_frame(
        [*arm(SMALL), *arm(LARGE, gpus=4), *arm(SMALL[:1], "lamb"), *arm(LARGE[:1], "lamb", gpus=2)]
    )
    view = larger_batch_view(larger_batch_table(runs, ["naive", "lamb"]), runs)
    assert view.rows[0][:7] == (
        "naive", "1 → 4", "16 → 64", "60 → 15", "3 / 3", "0.610 ± 0.025", "0.527 ± 0.063",
    )  # fmt: skip
    assert view.rows[0][7].startswith("-0.083 [-0.1")
    assert view.rows[1][5:] == ("0.600", "0.500", "-0.100 (n=1)")


def test_settings_of_one_name_are_rows_of_their_own() -> None:
    fast = {"technique": technique(base_lr=0.2)}
    found = kept(arm(SMALL), arm(LARGE, gpus=4), arm(SMALL, **fast), arm(LARGE, gpus=4, **fast))
    assert found["technique_label"].tolist() == ["naive (base_lr=0.1)", "naive (base_lr=0.2)"]


def test_a_sweep_of_one_batch_has_no_such_table() -> None:
    runs = runs_frame(arm(SMALL))
    assert not larger_batch_view(larger_batch_table(runs, ["naive"]), runs).rows
