"""A technique is claimed better only where the plan, its runs and the printed interval allow it."""

from __future__ import annotations

from xml.etree import ElementTree

import pandas as pd
import pytest
from scipy import stats

from analysis.stats.intervals import moments
from analysis.stats.power import further_runs
from analysis.table import Table
from analysis.topics.comparisons import techniques as topic
from analysis.topics.topic import Sweep
from tests.analysis.builders import config, record, technique
from tests.analysis.planned import arm, seeds, sweep
from train.config.run import Target

NAIVE = [0.40, 0.41, 0.42]
LAMB = [0.50, 0.53, 0.49]
WARM = [0.60, 0.61, 0.62]


def of(*arms, **plan) -> Sweep:
    return sweep([item for items in arms for item in items], **plan)


def table(*arms, **plan) -> Table:
    return topic.claims(of(*arms, **plan))


def claims(*arms, **plan) -> pd.DataFrame:
    return table(*arms, **plan).data


def test_difference_interval_and_p_as_scipy() -> None:
    row = claims(arm("naive", NAIVE), arm("lamb", LAMB)).iloc[0]
    test = stats.ttest_ind(LAMB, NAIVE, equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert row["difference"] == pytest.approx(sum(LAMB) / 3 - 0.41)
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((low, high))
    assert (row["difference_family_low"], row["difference_family_high"]) == pytest.approx(
        (low, high)
    ), "a family of one"
    assert row["p"] == pytest.approx(test.pvalue)
    assert (row["verdict"], row["reference"], row["family"]) == ("higher", "naive", 1)
    assert row["further_runs"] is pd.NA and row["difference_note"] is pd.NA
    assert claims(arm("naive", NAIVE), arm("lamb", [0.2, 0.21, 0.19]))["verdict"][0] == "lower"


def test_undecided_says_how_many_further_runs_would_show_the_margin() -> None:
    lamb = [0.38, 0.44, 0.47]
    row = claims(arm("naive", NAIVE), arm("lamb", lamb)).iloc[0]
    assert row["verdict"] == "undecided"
    (expected,) = further_runs(moments(lamb), moments(NAIVE)).runs
    assert row["further_runs"] == expected > 10


def test_a_claim_is_made_exactly_if_the_printed_interval_excludes_none() -> None:
    """Holm's test decided a little more than the simultaneous interval beside it."""
    close, far = [0.428, 0.436, 0.443], [0.60, 0.61, 0.62]
    alone = claims(arm("naive", NAIVE), arm("lamb", close)).iloc[0]
    assert (alone["verdict"], alone["p"] < 0.05) == ("higher", True)
    names = ("naive", "lamb", "warm", "gone")
    shown = table(arm("naive", NAIVE), arm("lamb", close), arm("warm", far), techniques=names)
    found = shown.data.set_index("technique")
    assert found["family"].tolist() == [3, 3, 3], "a technique without a cell counts as well"
    assert shown.intro.startswith("One family of 3 planned") and "not be read" not in shown.intro
    assert found.loc["lamb", "p"] == alone["p"], "not corrected"
    assert found["verdict"].tolist() == ["undecided", "higher", "not compared"]
    assert found.loc["gone", "verdict_why"] == "no planned cell of gone is known"
    test = stats.ttest_ind(close, NAIVE, equal_var=False).confidence_interval(1 - 0.05 / 3)
    assert test.low < 0 and found.loc["lamb", "difference_family_low"] == pytest.approx(test.low)
    (head,) = [one.title for one in shown.shown().columns if "interval" in one.title]
    assert head == "difference (simultaneous 95 % interval)", "one interval, which decides"


def test_p_between_holm_and_bonferroni_is_no_claim() -> None:
    """lars, +0.034 (-0.001 to +0.069), once ended higher, as Holm's step came after lamb's."""
    lars = [0.430, 0.444, 0.462]
    found = claims(arm("naive", NAIVE), arm("lamb", WARM), arm("lars", lars),
                   techniques=("naive", "lamb", "lars")).set_index("technique")  # fmt: skip
    row = found.loc["lars"]
    assert max(2 * found["p"].min(), row["p"]) < 0.05 < 2 * row["p"], "Holm, Bonferroni"
    assert row["difference_family_low"] < 0 and row["verdict"] == "undecided"


def test_a_technique_is_never_compared_at_a_smaller_scale_than_planned() -> None:
    """It lost its runs on 4 ranks, and is higher on 2: that was once called the result."""
    found = claims(
        arm("naive", NAIVE), arm("naive", NAIVE, gpus=4), arm("lamb", LAMB),
        lost=seeds("lamb", 3, gpus=4),
    ).iloc[0]  # fmt: skip
    assert (found["gpus"], found["verdict"]) == (4, "not compared")
    assert found["difference"] is pd.NA and found["p"] is pd.NA
    assert found["difference_note"] == "no usable run of lamb at the planned scale"


def test_the_largest_planned_scale_of_both_is_compared() -> None:
    row = claims(
        arm("naive", NAIVE), arm("naive", NAIVE, gpus=1), arm("naive", NAIVE, gpus=4),
        arm("lamb", [0.5, 0.51]), arm("lamb", NAIVE, gpus=1),
    ).iloc[0]  # fmt: skip
    assert (row["gpus"], row["global_batch"], row["n"], row["n_reference"]) == (2, 32, 2, 3)


def test_some_diverged_runs_leave_no_claim() -> None:
    """0.66, 0.65 and a diverged run once printed 0.470 ± 0.796, its chance being a value."""
    row = claims(arm("naive", NAIVE), arm("lamb", [0.9, 0.66, 0.65], diverged=1)).iloc[0]
    assert row["verdict"] == "untested"
    assert row["difference"] == pytest.approx(0.655 - 0.41), "among the survivors"
    assert row[["p", "difference_family_low", "further_runs"]].isna().all()
    assert (row["n"], row["n_diverged"], row["n_diverged_reference"]) == (3, 1, 0)
    assert row["verdict_why"] == "1 of 3 runs of lamb diverged"
    assert "share of lamb that diverged: 33 % (1 % to 91 %)" in row["difference_note"]


def test_another_budget_is_said() -> None:
    """Regime adaptation trains as many steps as the base batch would: here twice the epochs."""
    longer = technique("lamb", regime_adaptation=True, base_batch=16)
    lamb = [record(config(gpus=2, seed=seed, technique=longer)) for seed in range(2)]
    row = claims(arm("naive", NAIVE), lamb).iloc[0]
    assert row["difference_note"].endswith("images per run: 1,920 (lamb), 960 (naive)")
    assert row["images_ratio"] == 2


GOAL = {"target": Target(validation_accuracy=0.5, held_for=1)}
RANDOM = {"dataset": "synthetic"}
NO_PAIR = "no planned cell of naive with the same data, model"


@pytest.mark.parametrize(
    ("naive", "lamb", "verdict", "note"),
    [
        (arm("naive", NAIVE), arm("lamb", [0.9]), "untested", "n=1 in one of the two"),
        (arm("naive", [0.8] * 3), arm("lamb", [0.9] * 3), "untested",
         "no spread within either set of runs (0.900 and 0.800), so no interval"),
        (arm("naive", NAIVE, **RANDOM), arm("lamb", NAIVE, **RANDOM), "not compared",
         "random labels: accuracy has no meaning"),
        (arm("naive", [0.6] * 3, **GOAL), arm("lamb", NAIVE, **GOAL), "not compared",
         "where its target is met"),
        (arm("naive", NAIVE), arm("lamb", NAIVE, diverged=3), "not compared",
         "all 3 runs of lamb diverged"),
        (arm("naive", NAIVE, diverged=3), arm("lamb", NAIVE), "not compared",
         "all 3 runs of naive diverged"),
        (arm("naive", NAIVE), arm("lamb", NAIVE, batch_per_rank=8), "not compared", NO_PAIR),
        (arm("naive", NAIVE), arm("lamb", NAIVE, batch_per_rank=8, accumulation=2),
         "not compared", NO_PAIR),
        (arm("naive", NAIVE), arm("lamb", NAIVE, framework="mirrored"), "not compared",
         NO_PAIR),
        (arm("naive", NAIVE), arm("lamb", NAIVE, model="resnet_mini"), "not compared",
         NO_PAIR),
        ([], arm("lamb", NAIVE), "not compared", NO_PAIR),
    ],
)  # fmt: skip
def test_what_is_never_a_claim(naive, lamb, verdict: str, note: str) -> None:
    row = claims(naive, lamb).iloc[0]
    assert row["verdict"] == verdict and note in row["verdict_why"]
    assert note in row["difference_note"]
    assert row[["p", "difference_family_low", "further_runs"]].isna().all()
    assert topic.figure(of(naive, lamb)) is None


def test_the_reference_is_naive_else_the_first() -> None:
    assert topic.reference_technique(["lamb", "naive"]) == "naive"
    assert topic.reference_technique(["lamb", "warm"]) == "lamb"
    assert topic.reference_technique([]) is None


def test_each_setting_of_the_reference_counts_in_the_family() -> None:
    """Of two settings one shares no batch with lamb: not compared, and the family counts it."""
    wide = {"technique": technique("naive", base_lr=0.004), "batch_per_rank": 64}
    found = claims(arm("naive", NAIVE), arm("naive", NAIVE, **wide), arm("lamb", LAMB))
    assert found["family"].tolist() == [2, 2]
    compared, apart = (found[(found["verdict"] == "not compared") == is_apart].iloc[0]
                       for is_apart in (False, True))  # fmt: skip
    test = stats.ttest_ind(LAMB, NAIVE, equal_var=False).confidence_interval(1 - 0.05 / 2)
    assert compared["difference_family_low"] == pytest.approx(test.low)
    assert compared["reference"] != apart["reference"] and "0.004" in apart["reference"]
    assert f"no planned cell of {apart['reference']} with" in apart["difference_note"]


def test_nothing_to_compare_is_a_table_without_rows() -> None:
    assert len(claims(arm("naive", NAIVE), techniques=["naive"])) == 0
    assert len(claims(techniques=())) == 0


def test_accuracies_close_to_one_have_a_caution() -> None:
    """As skewed as they then are, Welch's test errs more often than it says."""
    naive, lamb = [0.96, 0.955, 0.965], [0.975, 0.9999, 1.0]
    row = claims(arm("naive", naive), arm("lamb", lamb)).iloc[0]
    assert "so close to 0 or 1 that p may be too small" in row["difference_note"]
    assert row["skewed"]
    plain = claims(arm("naive", naive), arm("lamb", [0.975, 0.976, 0.977])).iloc[0]
    assert plain["difference_note"] is pd.NA


def test_the_forest_shows_each_difference_with_its_verdict() -> None:
    """In the order of the differences, with the intervals of the table."""
    names = ("naive", "lamb", "warm", "gone")
    made = of(arm("naive", NAIVE), arm("lamb", [0.38, 0.44, 0.47]), arm("warm", WARM),
              techniques=names)  # fmt: skip
    found = topic.figure(made)
    assert found is not None and found.title == "Difference from naive at batch 32"
    titles = ElementTree.fromstring(str(found.svg)).iter("{http://www.w3.org/2000/svg}title")
    rows = made.made(topic.claims).data.set_index("technique")
    for tip, name, verdict in zip(titles, ("lamb", "warm"), ("undecided", "higher"), strict=True):
        ends = (rows.loc[name, f"difference_family{end}"] for end in ("", "_low", "_high"))
        value, low, high = (f"{end:+.3f}" for end in ends)
        assert tip.text == f"{name}: {value} ({low} to {high}), {verdict}, 3 runs and 3 of naive"
        assert f">{value} {verdict}<" in str(found.svg)
    assert "n = 3 runs each" in found.caption and "simultaneous 95 %" in found.caption
    assert found.data["technique"].tolist() == ["lamb", "warm"], "gone has no run"


def test_of_many_techniques_the_forest_says_what_it_leaves_out() -> None:
    names = ["naive", *(f"t{i:02}" for i in range(topic.MOST_ROWS + 2))]
    arms = [arm(name, [0.3 + at / 100, 0.31 + at / 100]) for at, name in enumerate(names)]
    found = topic.figure(of(*arms, techniques=names))
    assert found is not None and ">t00<" not in str(found.svg) and ">t02<" in str(found.svg)
    assert f"Shown: {topic.MOST_ROWS} of {topic.MOST_ROWS + 2} techniques" in found.caption
