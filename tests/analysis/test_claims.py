"""A difference is claimed only where seeds and Holm allow it; else how many seeds would decide."""

from __future__ import annotations

import pandas as pd
import pytest
from scipy import stats

from analysis.claims import claims_table, reference_technique
from analysis.claims_view import claims_view
from analysis.frames import runs_frame
from analysis.stats import holm, seeds_to_decide
from tests.analysis.builders import config, record, technique
from train.config.run import Target

NAIVE = [0.40, 0.41, 0.42]


def arm(name: str, accuracies, gpus: int = 2, **changes):
    return [
        record(config(name, gpus=gpus, seed=seed, **changes), accuracies=[0.1, 0.2, accuracy])
        for seed, accuracy in enumerate(accuracies)
    ]


def claims(*arms, techniques=("naive", "lamb")) -> pd.DataFrame:
    return claims_table(runs_frame([item for items in arms for item in items]), techniques)


def test_difference_interval_and_p_as_scipy() -> None:
    lamb = [0.50, 0.53, 0.49]
    row = claims(arm("naive", NAIVE), arm("lamb", lamb)).iloc[0]
    test = stats.ttest_ind(lamb, NAIVE, equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert row["difference"] == pytest.approx(sum(lamb) / 3 - 0.41)
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((low, high))
    assert row["p"] == pytest.approx(test.pvalue)
    assert row["p_holm"] == row["p"], "a family of one"
    assert (row["verdict"], row["reference"]) == ("higher", "naive")
    assert row["seeds_alone"] is pd.NA


def test_lower() -> None:
    assert claims(arm("naive", NAIVE), arm("lamb", [0.2, 0.21, 0.19]))["verdict"][0] == "lower"


def test_inconclusive_says_how_many_seeds_would_decide() -> None:
    lamb = [0.38, 0.44, 0.47]
    row = claims(arm("naive", NAIVE), arm("lamb", lamb)).iloc[0]
    sd = ((stats.tvar(lamb) + stats.tvar(NAIVE)) / 2) ** 0.5
    assert row["verdict"] == "inconclusive"
    assert row["seeds_alone"] == seeds_to_decide(0.02, sd).n
    assert row["seeds_in_family"] == row["seeds_alone"]


def test_holm_decides_over_the_family() -> None:
    """Alone this difference would pass at .05; among three comparisons it does not."""
    close, far = [0.428, 0.436, 0.443], [0.60, 0.61, 0.62]
    alone = claims(arm("naive", NAIVE), arm("lamb", close)).iloc[0]
    assert (alone["verdict"], alone["p"] < 0.05) == ("higher", True)
    names = ("naive", "lamb", "warm", "gone")
    found = claims(
        arm("naive", NAIVE), arm("lamb", close), arm("warm", far), techniques=names
    ).set_index("technique")
    assert found["family"].tolist() == [3, 3, 3], "a technique without a run counts as well"
    expected = holm([alone["p"], found.loc["warm", "p"], None])
    assert found.loc["lamb", "p_holm"] == pytest.approx(expected[0])
    assert found.loc["lamb", "verdict"] == "inconclusive"
    assert found.loc["warm", "verdict"] == "higher"
    assert found.loc["lamb", "seeds_in_family"] > found.loc["lamb", "seeds_alone"]
    assert (found.loc["gone", "verdict"], found.loc["gone", "why"]) == (
        "not compared", "no usable run of gone",
    )  # fmt: skip


def test_the_largest_common_rank_count_is_compared() -> None:
    row = claims(
        arm("naive", NAIVE, 1), arm("naive", NAIVE, 2), arm("naive", NAIVE, 4),
        arm("lamb", NAIVE, 1), arm("lamb", [0.5, 0.51], 2),
    ).iloc[0]  # fmt: skip
    assert (row["gpus"], row["global_batch"], row["n"], row["n_reference"]) == (2, 32, 2, 3)


def test_batches_are_not_mixed() -> None:
    row = claims(arm("naive", NAIVE), arm("lamb", NAIVE, batch_per_rank=8)).iloc[0]
    assert row["verdict"] == "not compared"
    assert row["why"] == "no rank count and batch at which both have a usable run"


@pytest.mark.parametrize(
    "changes", [{"framework": "mirrored"}, {"accumulation": 2, "batch_per_rank": 8}]
)
def test_frameworks_and_accumulations_are_not_mixed(changes: dict) -> None:
    """The same ranks and global batch in both arms, yet another library or other parts."""
    row = claims(arm("naive", NAIVE), arm("lamb", NAIVE, **changes)).iloc[0]
    assert (row["gpus"], row["verdict"]) == (pd.NA, "not compared")
    both = claims(arm("naive", NAIVE, **changes), arm("lamb", NAIVE, **changes)).iloc[0]
    assert (both["global_batch"], both["verdict"]) == (32, "inconclusive")


def test_another_budget_is_said() -> None:
    """Regime adaptation trains as many steps as the base batch would: here twice the epochs."""
    longer = technique("lamb", regime_adaptation=True, base_batch=16)
    lamb = [record(config(gpus=2, seed=seed, technique=longer)) for seed in range(2)]
    row = claims(arm("naive", NAIVE), lamb).iloc[0]
    assert "no equal budget: it saw 2 times the images of the reference" in row["why"]
    assert claims(arm("naive", NAIVE), arm("lamb", NAIVE)).iloc[0]["why"] is pd.NA


def test_runs_that_stop_at_a_target_are_not_compared_by_where_they_stopped() -> None:
    """The one that met it in half of the epochs had half of the time to go on."""
    target = Target(validation_accuracy=0.5, held_for=1)
    naive, lamb = arm("naive", [0.6] * 3, target=target), arm("lamb", NAIVE, target=target)
    row = claims(naive, lamb).iloc[0]
    assert row["verdict"] == "not compared" and "where its target is met" in row["why"]
    assert row["accuracy"] == pytest.approx(0.41)
    assert row[["difference", "p", "p_holm", "seeds_alone"]].isna().all()


def test_workloads_are_compared_apart() -> None:
    found = claims(
        arm("naive", NAIVE), arm("lamb", NAIVE), arm("naive", NAIVE, model="resnet_mini"),
        arm("lamb", NAIVE, epochs=4, model="resnet_mini"),
    )  # fmt: skip
    assert sorted(found["verdict"]) == ["inconclusive", "not compared"]


def test_one_seed_is_never_a_claim() -> None:
    row = claims(arm("naive", NAIVE), arm("lamb", [0.9])).iloc[0]
    assert (row["verdict"], row["why"]) == ("inconclusive", "n=1 in one of the two")
    assert (row["p"], row["difference_low"], row["seeds_alone"]) == (pd.NA,) * 3
    assert "two runs" in row["seeds_why"]


def test_no_variance_is_never_a_claim() -> None:
    row = claims(arm("naive", [0.4, 0.4]), arm("lamb", [0.9, 0.9])).iloc[0]
    assert (row["verdict"], row["p"]) == ("inconclusive", pd.NA)
    assert "no variance" in row["why"]


def test_diverged_runs_count_as_chance() -> None:
    lamb = [*arm("lamb", [0.5, 0.52]), record(config("lamb", gpus=2, seed=2), status="diverged")]
    row = claims(arm("naive", NAIVE), lamb).iloc[0]
    assert row["accuracy"] == pytest.approx((0.5 + 0.52 + 0.1) / 3)
    test = stats.ttest_ind([0.5, 0.52, 0.1], NAIVE, equal_var=False)
    assert row["difference"] == pytest.approx((0.5 + 0.52 + 0.1) / 3 - 0.41)
    assert row["p"] == pytest.approx(test.pvalue), "not that of the survivors"
    assert (row["n"], row["n_diverged"], row["n_diverged_reference"]) == (3, 1, 0)


def test_no_accuracy_is_not_compared() -> None:
    row = claims(
        arm("naive", NAIVE, dataset="synthetic"), arm("lamb", NAIVE, dataset="synthetic")
    ).iloc[0]
    assert (row["verdict"], row["why"]) == (
        "not compared", "random labels: accuracy has no meaning",
    )  # fmt: skip
    assert row["difference"] is pd.NA


def test_the_reference_is_naive_else_the_first() -> None:
    assert reference_technique(["lamb", "naive"]) == "naive"
    assert reference_technique(["lamb", "warm"]) == "lamb"
    assert reference_technique([]) is None


def test_without_a_run_of_the_reference() -> None:
    row = claims(arm("lamb", NAIVE)).iloc[0]
    assert (row["verdict"], row["why"]) == (
        "not compared", "no usable run of the reference technique",
    )  # fmt: skip


def test_view_of_one_technique_says_that_there_is_nothing_to_compare() -> None:
    runs = runs_frame(arm("naive", NAIVE))
    view = claims_view(claims_table(runs, ["naive"]), runs, "naive")
    assert view.rows == ()
    assert "nothing to compare" in view.empty
