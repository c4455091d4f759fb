"""Scores per class over seeds, against numbers worked out by hand; nulls keep their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from analysis.table import Table
from analysis.topics.convergence import class_scores as scores
from tests.analysis.builders import REASON, classification, config, frames_of_records, record
from tests.analysis.planned import sweep
from train.record.run import RunRecord

NAMES = ("ant", "bee", "<cat>")
FIRST = [[6, 2, 0], [1, 3, 0], [4, 0, 4]]
SECOND = [[8, 0, 0], [4, 0, 0], [0, 0, 8]]  # no bee predicted


def scored(
    matrix: Sequence[Sequence[int]], run: Any = None, names: Sequence[str] = NAMES, **changes: Any
) -> RunRecord:
    """A record with this confusion."""
    return record(run or config(), classification=classification(matrix, names), **changes)


def made(*items: RunRecord) -> Table:
    return scores.table(sweep(items))


def test_a_run_is_one_row_per_class() -> None:
    found = frames_of_records([scored(FIRST)])["classes"]
    assert found["class"].tolist() == list(NAMES)
    assert found["support"].tolist() == [8, 4, 8]
    assert found["precision"].tolist() == [6 / 11, 3 / 5, 1.0]
    assert found["recall"].tolist() == [6 / 8, 3 / 4, 4 / 8]
    assert found["epoch"].tolist() == [3] * 3
    assert found["precision_why"].isna().all()


def test_means_are_over_seeds_and_a_score_without_a_value_is_left_out_and_said() -> None:
    table = made(scored(FIRST), scored(SECOND, config(seed=1)))
    ant, bee = (row for _, row in table.data.iloc[:2].iterrows())
    assert ant["recall"] == pytest.approx((0.75 + 1) / 2) and (ant["n"], ant["support"]) == (2, 8)
    assert bee["precision"] == pytest.approx(3 / 5), "not the mean of 3/5 and 0"
    assert bee["recall"] == pytest.approx((3 / 4 + 0) / 2) and bee["recall_why"] is pd.NA
    view = table.shown()
    assert view.rows[1][3] == "0.600\u00a0¹"
    assert view.notes == (f"¹ 1 of 2 runs lack the value: {REASON}",)
    alone = made(scored(SECOND)).shown()
    assert alone.rows[1][2:] == ("bee", "n/a\u00a0¹", "0.000", "0.000", "4", "1")
    assert alone.notes == (f"¹ {REASON}",)


def test_a_diverged_run_is_in_no_mean() -> None:
    gone = scored(SECOND, config(seed=1), status="diverged")
    assert made(scored(FIRST), gone).data["n"].tolist() == [1] * 3
    unscored = record(classification=None, missing={"classification": "random labels"})
    assert made(gone).shown().rows == made(unscored).shown().rows == ()


def test_conditions_are_in_the_order_of_the_manifest_at_the_largest_batch_first() -> None:
    found = made(scored(FIRST, config("lamb")), scored(FIRST), scored(FIRST, config(gpus=2))).data
    assert found["technique"].tolist() == ["naive"] * 6 + ["lamb"] * 3
    assert found["gpus"].tolist() == [2] * 3 + [1] * 6
    assert found["class"].tolist() == [*NAMES] * 3


def test_runs_with_other_classes_are_not_averaged() -> None:
    """Two seeds of one config, between which a folder got another class."""
    other = scored([[1, 0], [0, 2]], config(seed=1), ("ant", "<cat>"))
    found = made(scored(FIRST), other).data
    by_class = dict(zip(zip(found["class"], found["place"], strict=True), found["n"], strict=True))
    assert (by_class["ant", 0], by_class["bee", 1], by_class["<cat>", 1]) == (2, 1, 1)
