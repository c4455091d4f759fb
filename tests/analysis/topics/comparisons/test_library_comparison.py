"""The same cell under two libraries, against scipy's own tests and numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.stats.levels import SAME_ACCURACY as MARGIN
from analysis.topics.comparisons import libraries
from tests.analysis.builders import config, record
from tests.analysis.planned import seeds, sweep

OTHER = "multi_worker_mirrored"
RATES, OTHER_RATES = [200.0, 210.0, 190.0], [160.0, 150.0, 155.0]
SCORES, OTHER_SCORES = [0.800, 0.803, 0.798], [0.801, 0.799, 0.802]


def arm(framework: str, rates, scores, **changes):
    world = changes.pop("world_changes", None)
    return [
        record(config(gpus=2, seed=seed, framework=framework, **changes), images_per_s=rate,
               accuracies=[0.1, 0.2, score], world_changes=world)
        for seed, (rate, score) in enumerate(zip(rates, scores, strict=True))
    ]  # fmt: skip


def both(scores=SCORES, others=OTHER_SCORES, **changes):
    rates = RATES[: len(scores)], OTHER_RATES[: len(others)]
    return [
        *arm("horovod", rates[0], scores, **changes), *arm(OTHER, rates[1], others, **changes)
    ]  # fmt: skip


def compared(*items, **plan) -> pd.DataFrame:
    return libraries.compared(sweep(items, **plan)).data


def test_ratio_difference_and_equality_are_those_of_scipy() -> None:
    row = compared(*both()).iloc[0]
    assert (row["framework"], row["library"]) == ("horovod", OTHER)
    test = stats.ttest_ind(np.log(RATES), np.log(OTHER_RATES), equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert row["ratio"] == pytest.approx(stats.gmean(RATES) / stats.gmean(OTHER_RATES))
    assert (row["ratio_low"], row["ratio_high"]) == pytest.approx((math.exp(low), math.exp(high)))
    assert row["ratio_p"] == pytest.approx(test.pvalue)
    ends = np.exp(test.confidence_interval(1 - 0.05 / 2))
    assert (row["ratio_family_low"], row["ratio_family_high"]) == pytest.approx(tuple(ends))
    assert row["difference"] == pytest.approx(np.mean(SCORES) - np.mean(OTHER_SCORES))
    lower, upper = (
        stats.ttest_ind(np.add(SCORES, shift), OTHER_SCORES, equal_var=False, alternative=side)
        for shift, side in ((MARGIN, "greater"), (-MARGIN, "less"))
    )
    assert row["equivalence_p"] == pytest.approx(max(lower.pvalue, upper.pvalue))
    assert row["verdict"] == "equal to within 0.01"


@pytest.mark.parametrize(
    ("scores", "others", "verdict"),
    [
        ([0.80, 0.83, 0.77], [0.79, 0.83, 0.80], "undecided"),
        ([0.80, 0.81, 0.79], [0.60, 0.61, 0.59], "different"),
        ([0.8000, 0.8001, 0.7999], [0.8020, 0.8021, 0.8019], "different, equal to within 0.01"),
        ([0.8, 0.7, 0.9], [0.8, 0.7, 0.9], "identical in every seed"),
        ([0.8, 0.7, 0.9], [0.8, 0.9, 0.7], "undecided"),
        ([0.8, 0.8], [0.7, 0.7], "untested"),
        ([0.8], [0.8], "untested"),
    ],
)
def test_what_is_said_of_accuracy(scores, others, verdict: str) -> None:
    assert compared(*both(scores, others)).iloc[0]["verdict"] == verdict


def test_both_differences_of_all_cells_are_one_family() -> None:
    slow = both([0.80, 0.81, 0.79], [0.70, 0.71, 0.69], batch_per_rank=8)
    found = compared(*both(), *slow)
    assert found["family"].tolist() == [4, 4]
    test = stats.ttest_ind(SCORES, OTHER_SCORES, equal_var=False)
    row = found[found["global_batch"] == 32].iloc[0]
    ends = test.confidence_interval(1 - 0.05 / 4)
    assert (row["difference_family_low"], row["difference_family_high"]) == pytest.approx(
        tuple(ends)
    )


def test_only_equal_cells_are_compared() -> None:
    for change in ({"batch_per_rank": 8}, {"epochs": 4}, {"gpus": 1}):
        asked = {"gpus": 2, "framework": OTHER} | change
        other = record(config(**asked), accuracies=[0.5] * asked.get("epochs", 3))
        assert len(compared(*arm("horovod", RATES, SCORES), other)) == 0, change


def test_without_horovod_the_others_are_compared() -> None:
    items = [*arm(OTHER, RATES, SCORES), *arm("mirrored", OTHER_RATES, OTHER_SCORES)]
    row = compared(*items).iloc[0]
    assert (row["framework"], row["library"]) == (OTHER, "mirrored")


def test_no_ratio_between_machines_nor_on_shared_cores() -> None:
    faster = arm(OTHER, OTHER_RATES, OTHER_SCORES, world_changes={"device": "Other CPU"})
    row = compared(*arm("horovod", RATES, SCORES), *faster).iloc[0]
    assert row[["ratio", "ratio_p"]].isna().all()
    assert row["ratio_note"] == f"device: Test CPU (horovod), Other CPU ({OTHER})"
    assert row["verdict"] == "equal to within 0.01", "the accuracy is comparable still"
    shared = both(world_changes={"oversubscribed": True})
    assert "share cores" in compared(*shared).iloc[0]["ratio_note"]


def test_diverged_runs_leave_no_verdict_on_accuracy_and_have_no_rate() -> None:
    gone = record(config(gpus=2, seed=3, framework=OTHER), status="diverged", images_per_s=999.0)
    row = compared(*both(), gone).iloc[0]
    assert row["accuracy_library"] == pytest.approx(np.mean(OTHER_SCORES)), "of the survivors"
    assert (row["n_library"], row["n_diverged_library"]) == (4, 1)
    assert row["verdict"] == "untested"
    assert row[["difference_p", "equivalence_p"]].isna().all()
    assert row["images_per_s_library"] == pytest.approx(stats.gmean(OTHER_RATES))
    assert row["ratio_verdict"] == "higher", "its throughput is known"


def test_a_library_that_lost_its_runs_stays_in_the_family() -> None:
    mirrored = seeds("naive", 3, framework="mirrored")
    found = compared(*both(), lost=mirrored).set_index("library")
    lost = found.loc["mirrored"]
    assert lost["verdict"] == "not compared"
    assert lost["ratio_note"] == "no completed run of mirrored"
    assert lost["difference_note"] == "no usable run of mirrored at the planned scale"
    assert found["family"].tolist() == [4, 4]
    alone = compared(*both()).iloc[0]
    assert found.loc[OTHER, "ratio_family_high"] > alone["ratio_family_high"]


def test_the_view_says_what_was_compared() -> None:
    items = both()
    shown = libraries.compared(sweep(items))
    (row,) = shown.shown().rows
    assert row[0] == "naive", "the framework has a column of its own"
    assert row[1:6] == ("2", "32", f"horovod / {OTHER}", "3 / 3", "200 / 155")
    assert row[6].startswith("1.29 (1.1") and row[7].startswith("-0.0003 (-0.00")
    assert "2 tests" in shown.intro
    assert len(compared(items[0])) == 0
