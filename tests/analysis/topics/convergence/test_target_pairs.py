"""Times to a target, pair by pair, against scipy."""

from __future__ import annotations

import numpy as np
from scipy import stats

from analysis.table import plain_rows
from analysis.topics.comparisons.ranking import UNDECIDED
from analysis.topics.convergence.targets import target_pairs
from tests.analysis.builders import config
from tests.analysis.planned import sweep
from tests.analysis.topics.convergence.test_targets_table import TARGET, run

#: Epochs to the target, of 2.5 s and 20 steps each.
SOON, LATE, ALIKE = [2, 3, 2], [8, 9, 9], [2, 3, 4]


def test_pairs_are_welch_on_logarithms_in_one_family_of_both_measures() -> None:
    epochs = {"lamb": LATE, "naive": SOON, "lars": ALIKE}
    items = [run(seed, n, name=name) for name, own in epochs.items() for seed, n in enumerate(own)]
    rows = plain_rows(target_pairs(sweep(items)).data)
    assert [(row["first"], row["second"]) for row in rows] == [
        ("naive", "lars"), ("naive", "lamb"), ("lars", "lamb"),
    ]  # fmt: skip
    for row in rows:
        first, second = (np.log(2.5 * np.array(epochs[row[end]])) for end in ("first", "second"))
        found = stats.ttest_ind(second, first, equal_var=False)
        ends = found.confidence_interval(0.95)
        numbers = [row[f"seconds{part}"] for part in ("", "_low", "_high", "_p")]
        mean = second.mean() - first.mean()
        expected = [*np.exp([mean, ends.low, ends.high]), found.pvalue]
        np.testing.assert_allclose(numbers, expected, rtol=1e-9)
        np.testing.assert_allclose(row["steps"], row["seconds"])  # equal steps an epoch
        assert row["family"] == 6
    assert [row["verdict"] for row in rows] == [UNDECIDED, "second is later", UNDECIDED]


def test_a_condition_with_a_run_that_is_lost_or_never_got_there_is_not_compared() -> None:
    items = [run(seed, n, name="naive") for seed, n in enumerate(SOON)]
    items += [run(seed, n, name="lamb") for seed, n in enumerate([8, 9, None])]
    items += [run(seed, n, name="lars") for seed, n in enumerate(LATE[:2])]
    lost = [config("lars", seed=9, epochs=10, target=TARGET)]
    rows = plain_rows(target_pairs(sweep(items, lost=lost)).data)
    assert {row["seconds"] for row in rows} == {None} and {row["family"] for row in rows} == {6}
    assert all("did not reach the target, or is lost" in row["verdict"] for row in rows)
