"""Scores per class over seeds, against numbers worked out by hand; nulls keep their reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from analysis.table import Shown, Table
from analysis.topics.convergence import class_scores as scores
from analysis.topics.convergence.class_scores import AVERAGE
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


def table(*items: RunRecord) -> pd.DataFrame:
    return made(*items).data


def shown(*items: RunRecord) -> Shown:
    return made(*items).shown()


def test_a_run_is_one_row_per_class() -> None:
    found = frames_of_records([scored(FIRST)])["classes"]
    assert found["class"].tolist() == list(NAMES)
    assert found["support"].tolist() == [8, 4, 8]
    assert found["precision"].tolist() == [6 / 11, 3 / 5, 1.0]
    assert found["recall"].tolist() == [6 / 8, 3 / 4, 4 / 8]
    assert found["epoch"].tolist() == [3] * 3
    assert found["precision_why"].isna().all()


def test_means_are_over_seeds_with_their_deviation() -> None:
    ant = table(scored(FIRST), scored(SECOND, config(seed=1))).iloc[0]
    assert ant["recall"] == pytest.approx((0.75 + 1) / 2)
    assert (ant["n"], ant["support"]) == (2, 8)


def test_a_score_without_a_value_is_left_out_and_said() -> None:
    bee = table(scored(FIRST), scored(SECOND, config(seed=1))).iloc[1]
    assert bee["precision"] == pytest.approx(3 / 5), "not the mean of 3/5 and 0"
    assert bee["precision_why"] == f"1 of 2 runs lack the value: {REASON}"
    assert bee["recall"] == pytest.approx((3 / 4 + 0) / 2)
    assert bee["recall_why"] is pd.NA
    view = shown(scored(FIRST), scored(SECOND, config(seed=1)))
    assert view.rows[1][3] == "0.600\u00a0¹" and "1 of 2 runs lack" in view.notes[0]
    alone = shown(scored(SECOND))
    assert alone.rows[1][2:] == ("bee", "n/a\u00a0¹", "0.000", "0.000", "4", "1")
    assert alone.notes[0] == f"¹ {REASON}"
    assert alone.rows[3][2:4] == (AVERAGE, "n/a\u00a0²"), "no mean over those that have a value"
    assert alone.notes[1] == "² 1 of 3 classes lack the value"


def test_the_last_row_is_the_mean_of_the_classes() -> None:
    *_, last = shown(scored(FIRST)).rows
    f1 = math.fsum(2 * p * r / (p + r) for p, r in
                   ((6 / 11, 6 / 8), (3 / 5, 3 / 4), (1, 4 / 8))) / 3  # fmt: skip
    recall = (6 / 8 + 3 / 4 + 4 / 8) / 3
    assert last[2] == AVERAGE and last[4:6] == (f"{recall:.3f}", f"{f1:.3f}")
    assert last[6:] == ("20", "1")


def test_a_diverged_run_is_in_no_mean() -> None:
    gone = scored(SECOND, config(seed=1), status="diverged")
    assert table(scored(FIRST), gone)["n"].tolist() == [1] * 4, "three classes, and their mean"
    assert len(shown(gone).rows) == 0


def test_conditions_are_in_the_order_of_the_manifest_at_the_largest_batch_first() -> None:
    found = table(scored(FIRST, config("lamb")), scored(FIRST), scored(FIRST, config(gpus=2)))
    assert found["technique"].tolist() == ["naive"] * 8 + ["lamb"] * 4
    assert found["gpus"].tolist() == [2] * 4 + [1] * 8
    assert found["class"].tolist() == [*NAMES, AVERAGE] * 3


def test_runs_with_other_classes_are_not_averaged() -> None:
    """Two seeds of one config, between which a folder got another class."""
    other = scored([[1, 0], [0, 2]], config(seed=1), ("ant", "<cat>"))
    found = table(scored(FIRST), other)
    by_class = dict(zip(zip(found["class"], found["place"], strict=True), found["n"], strict=True))
    assert (by_class["ant", 0], by_class["bee", 1], by_class["<cat>", 1]) == (2, 1, 1)


def test_without_scores_there_is_no_row() -> None:
    told = record(classification=None, missing={"classification": "random labels"})
    assert shown(told).rows == shown().rows == ()
