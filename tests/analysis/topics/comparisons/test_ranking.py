"""All techniques at one scale: their order, and which pairs are told apart."""

from __future__ import annotations

import pandas as pd
import pytest
from scipy import stats

from analysis.topics.comparisons import ranking
from tests.analysis.planned import arm, seeds, sweep
from train.config.run import Target

SETS = {
    "naive": [0.40, 0.41, 0.42],
    "lamb": [0.50, 0.53, 0.49],
    "lars": [0.505, 0.53, 0.48],
    "muon": [0.70, 0.71, 0.705],
}


def both(*arms, **plan) -> tuple[pd.DataFrame, pd.DataFrame]:
    of = sweep([item for items in arms for item in items], **plan)
    return ranking.ranked(of).data, ranking.paired(of).data


def test_rows_are_by_mean_and_every_pair_is_in_one_of_two_families() -> None:
    """A pair in both once contradicted itself: lamb above naive, and 0 of 3 pairs differ."""
    ranked, pairs = both(*(arm(name, runs) for name, runs in SETS.items()))
    assert ranked["technique"].tolist() == ["muon", "lamb", "lars", "naive"]
    assert ranked["place"].tolist() == [1, 2, 3, 4]
    names = list(zip(pairs["technique"], pairs["second"], strict=True))
    assert names == [("muon", "lamb"), ("muon", "lars"), ("lamb", "lars")]
    tests = [stats.ttest_ind(SETS[a], SETS[b], equal_var=False) for a, b in names]
    assert pairs["p"].tolist() == pytest.approx([test.pvalue for test in tests])
    wide = [test.confidence_interval(1 - 0.05 / 3).low for test in tests]
    assert pairs["difference_family_low"].tolist() == pytest.approx(wide)
    assert (pairs["difference"] >= 0).all(), "the higher one first"


def test_the_scale_is_the_largest_planned_for_two_techniques() -> None:
    ranked, pairs = both(
        arm("naive", [0.9, 0.91], gpus=4), arm("naive", [0.5, 0.6]), arm("lamb", [0.6, 0.7]),
        arm("lamb", [0.1, 0.2], gpus=1), arm("naive", [0.1, 0.2], gpus=1),
    )  # fmt: skip
    assert ranked["gpus"].tolist() == [2, 2] and len(pairs) == 0, "it is the reference's"
    assert not any(map(len, both(arm("naive", SETS["naive"]))))


def test_a_technique_without_runs_there_is_last_and_its_pairs_count() -> None:
    ranked, pairs = both(
        arm("lars", SETS["naive"]), arm("lamb", SETS["lamb"]), lost=seeds("muon", 3)
    )
    assert ranked["technique"].tolist() == ["lamb", "lars", "muon"]
    assert ranked["place"].isna().tolist() == [False, False, True]
    assert ranked["accuracy_note"].tolist()[2] == "no usable run of muon at the planned scale"
    assert pairs["verdict"].tolist() == ["higher", "not compared", "not compared"]
    test = stats.ttest_ind(SETS["lamb"], SETS["naive"], equal_var=False)
    low = test.confidence_interval(1 - 0.05 / 3).low
    assert pairs["difference_family_low"][0] == pytest.approx(low)


def test_an_arm_with_diverged_runs_is_ranked_by_the_others_and_decides_nothing() -> None:
    ranked, pairs = both(arm("lars", SETS["naive"]), arm("muon", SETS["muon"], diverged=1),
                         techniques=("naive", "lars", "muon"))  # fmt: skip
    assert ranked["accuracy_note"].tolist()[0] == "1 of 3 runs diverged, in no mean"
    assert ranked["accuracy"].tolist()[0] == pytest.approx(0.7075)
    assert pairs["verdict"].tolist() == ["untested"] and pairs["p"].isna().all()
    assert pairs["verdict_why"].tolist() == ["1 of 3 runs of muon diverged"]
    none, _ = both(arm("naive", SETS["naive"]), arm("muon", SETS["muon"], diverged=3))
    assert none["accuracy_note"].tolist()[1] == "all 3 runs diverged"


def test_runs_that_end_at_a_target_have_no_place() -> None:
    """Once they had one by accuracies that the table does not show."""
    goal = {"target": Target(validation_accuracy=0.5, held_for=1)}
    ranked, _ = both(*(arm(name, SETS[name], **goal) for name in ("naive", "muon")))
    assert ranked[["place", "accuracy"]].isna().all(axis=None)


def test_workloads_are_ranked_apart_and_share_a_family() -> None:
    other = {"model": "resnet_mini"}
    ranked, pairs = both(*(arm(name, SETS[name], **extra)
                           for name in ("lars", "muon") for extra in ({}, other)))  # fmt: skip
    assert ranked["place"].tolist() == [1, 2, 1, 2]
    assert len(pairs) == 2 and pairs["family"].tolist() == [2, 2]


def test_of_very_many_arms_the_highest_are_listed_and_all_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(ranking, "MOST_ARMS", 2)
    records = [item for name, runs in SETS.items() for item in arm(name, runs)]
    found = ranking.paired(sweep(records))
    assert found.data[["technique", "second"]].to_numpy().tolist() == [["muon", "lamb"]]
    test = stats.ttest_ind(SETS["muon"], SETS["lamb"], equal_var=False)
    low = test.confidence_interval(1 - 0.05 / 3).low
    assert found.data["difference_family_low"][0] == pytest.approx(low)
    assert "only pairs of the highest are listed" in found.intro and found.folded
