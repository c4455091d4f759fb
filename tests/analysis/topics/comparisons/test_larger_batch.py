"""What a technique keeps when the batch grows: smallest against largest batch, over seeds."""

from __future__ import annotations

import pytest
from scipy import stats

from analysis.table import Table
from analysis.topics.comparisons import larger_batch
from tests.analysis.planned import arm as arm_of
from tests.analysis.planned import seeds, sweep

SMALL, LARGE = [0.60, 0.62, 0.61], [0.50, 0.55, 0.53]


def arm(accuracies, name: str = "naive", diverged: int = 0, **changes):
    return arm_of(name, accuracies, diverged, **{"gpus": 1, **changes})


def table(*arms, **plan) -> Table:
    return larger_batch.kept(sweep([run for runs in arms for run in runs], **plan))


def kept(*arms, **others):
    return table(*arms, **others).data


def test_the_change_and_its_interval_are_those_of_scipy() -> None:
    row = kept(arm(SMALL), arm(LARGE, accumulation=4)).iloc[0]
    low, high = stats.ttest_ind(LARGE, SMALL, equal_var=False).confidence_interval(0.95)
    assert row["difference"] == pytest.approx(sum(LARGE) / 3 - sum(SMALL) / 3)
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((low, high))
    assert (row["accuracy_small"], row["accuracy_large"]) == pytest.approx((0.61, 0.58 - 0.16 / 3))
    half = stats.t.ppf(0.975, 2) * stats.tstd(SMALL) / 3**0.5
    assert row["accuracy_small_high"] == pytest.approx(0.61 + half)
    assert (row["global_batch_small"], row["global_batch_large"]) == (16, 64)
    assert not row["context"], "what makes the batch is said in columns of its own"


def test_only_the_two_ends_count_and_only_of_one_workload() -> None:
    found = kept(
        arm(SMALL), arm([0.9, 0.9], gpus=2), arm(LARGE, gpus=4),
        arm_of("naive", [0.3, 0.31], gpus=1, model="resnet_mini"),
        arm_of("naive", [0.2, 0.21], gpus=2, model="resnet_mini"),
        arm([0.7, 0.71], "lamb"),
    )  # fmt: skip
    assert found["technique"].tolist() == ["naive", "naive"], "lamb has one batch"
    assert sorted(found["global_batch_large"]) == [32, 64]
    assert sorted(found["difference"]) == pytest.approx([-0.1, -0.25 / 3])
    assert sorted(found["context"]) == [("cnn",), ("resnet_mini",)]


def test_the_smallest_is_of_the_fewest_ranks_and_the_largest_of_the_most() -> None:
    row = kept(
        arm(SMALL), arm([0.1, 0.1], gpus=2, batch_per_rank=8),
        arm(LARGE, gpus=8, batch_per_rank=8), arm([0.1, 0.1], gpus=4),
    ).iloc[0]  # fmt: skip
    assert (row["gpus_small"], row["gpus_large"], row["n_large"]) == (1, 8, 3)
    # where ranks have several batches, what other ranks change is no effect of the batch
    grid = [arm(SMALL if gpus == 1 else LARGE, gpus=gpus, batch_per_rank=batch // gpus)
            for gpus in (1, 4) for batch in (32, 128)]  # fmt: skip
    row = kept(*grid).iloc[0]
    assert (row["gpus_small"], row["gpus_large"], row["difference"]) == (4, 4, 0)
    other = [arm(SMALL, "lamb", gpus=2, batch_per_rank=size) for size in (16, 64)]
    for arms, ranks in ((grid, " on 4 ranks,"), ((*grid, *other), ",")):
        (said,) = larger_batch.TOPIC.answers[0](sweep([run for runs in arms for run in runs]))
        assert said.text.startswith(f"From batch 32 to 128{ranks}")
    row = kept(*grid, arm(LARGE, accumulation=20)).iloc[0]
    assert (row["global_batch_small"], row["global_batch_large"]) == (32, 320), "the widest range"


def test_the_largest_planned_batch_stays_the_end_without_a_run() -> None:
    row = kept(arm(SMALL), arm(LARGE, gpus=2), lost=seeds("naive", 3, gpus=4)).iloc[0]
    assert row["global_batch_large"] == 64
    assert row[["difference", "accuracy_large"]].isna().all()
    assert row["difference_note"] == "no usable run of the largest batch at the planned scale"
