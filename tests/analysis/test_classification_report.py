"""Scores per class over seeds, against numbers worked out by hand; nulls keep their reasons."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from analysis.classification import (
    AVERAGE,
    MOST_ROWS,
    classes_frame,
    classification_table,
    classification_view,
    nothing_why,
)
from analysis.confusion import MOST_CLASSES, MOST_PANELS, confusion_data, confusion_figure
from analysis.frames import runs_frame
from analysis.plots import inline
from tests.analysis.builders import REASON, config, record, technique
from train.record.run import Classification, ClassScore, RunRecord

NAMES = ("ant", "bee", "<cat>")


def scored(
    matrix: Sequence[Sequence[int]], run: Any = None, names: Sequence[str] = NAMES, **changes: Any
) -> RunRecord:
    """A record with this confusion; its scores by the definitions, written out."""
    scores = []
    for i, name in enumerate(names):
        hits, there, said = matrix[i][i], sum(matrix[i]), sum(row[i] for row in matrix)
        scores.append(
            ClassScore(
                name=name,
                precision=hits / said if said else None,
                recall=hits / there if there else None,
                f1=2 * hits / (said + there) if said + there else None,
                support=there,
            )
        )
    found = Classification(
        epoch=3, classes=tuple(scores), confusion=tuple(tuple(row) for row in matrix)
    )
    return record(run or config(), classification=found, **changes)


def table(*items: RunRecord) -> pd.DataFrame:
    return classification_table(classes_frame(items, runs_frame(items)), ["naive", "lamb"])


def shown(*items: RunRecord) -> Any:
    return classification_view(table(*items), runs_frame(items), nothing_why(items))


FIRST = [[6, 2, 0], [1, 3, 0], [4, 0, 4]]
SECOND = [[8, 0, 0], [4, 0, 0], [0, 0, 8]]  # no bee predicted


def test_a_run_is_one_row_per_class() -> None:
    items = [scored(FIRST)]
    found = classes_frame(items, runs_frame(items))
    assert found["class"].tolist() == list(NAMES)
    assert found["support"].tolist() == [8, 4, 8]
    assert found["predicted"].tolist() == [11, 5, 4]
    assert found["precision"].tolist() == [6 / 11, 3 / 5, 1.0]
    assert found["recall"].tolist() == [6 / 8, 3 / 4, 4 / 8]
    assert found["epoch"].tolist() == [3] * 3
    assert found["precision_why"].isna().all()


def test_means_are_over_seeds_with_their_interval() -> None:
    ant = table(scored(FIRST), scored(SECOND, config(seed=1))).iloc[0]
    assert ant["recall_mean"] == pytest.approx((0.75 + 1) / 2)
    # t(0.975, 1) = 12.7062
    assert ant["recall_half_width"] == pytest.approx(12.7062 * 0.25 / math.sqrt(2) / math.sqrt(2))
    assert (ant["n"], ant["recall_n"], ant["support"]) == (2, 2, 8)


def test_a_score_without_a_value_is_left_out_and_said() -> None:
    bee = table(scored(FIRST), scored(SECOND, config(seed=1))).iloc[1]
    assert bee["precision_mean"] == pytest.approx(3 / 5), "not the mean of 3/5 and 0"
    assert bee["precision_n"] == 1 and "1 of 2 runs lack the value" in bee["precision_why"]
    assert bee["recall_mean"] == pytest.approx((3 / 4 + 0) / 2)
    view = shown(scored(FIRST), scored(SECOND, config(seed=1)))
    assert view.rows[1][4] == "0.600 ¹" and "1 of 2 runs lack" in view.notes[0]
    alone = shown(scored(SECOND))
    assert alone.rows[1][3:] == ("bee", "n/a ¹", "0.000", "0.000", "4", "1")
    assert alone.notes[0] == f"¹ {REASON}"
    assert alone.rows[3][3:5] == (AVERAGE, "n/a ²"), "no mean over the classes that have a value"


def test_the_last_row_is_the_mean_of_the_classes() -> None:
    *_, last = shown(scored(FIRST)).rows
    recall = (6 / 8 + 3 / 4 + 4 / 8) / 3
    assert last[3] == AVERAGE and last[5] == f"{recall:.3f}" and last[7:] == ("20", "1")


def test_a_diverged_run_is_in_no_mean() -> None:
    gone = scored(SECOND, config(seed=1), status="diverged")
    assert table(scored(FIRST), gone)["n"].tolist() == [1, 1, 1]
    assert len(shown(gone).rows) == 0


def test_conditions_are_in_the_order_of_the_manifest() -> None:
    found = table(scored(FIRST, config("lamb")), scored(FIRST, config(gpus=2)), scored(FIRST))
    assert found["technique"].tolist() == ["naive"] * 6 + ["lamb"] * 3
    assert found["gpus"].tolist() == [1] * 3 + [2] * 3 + [1] * 3


def test_nothing_to_show_says_why() -> None:
    assert "older records" in shown(record()).empty
    told = record(classification=None, missing={"classification": "random labels"})
    assert shown(told).empty == "No class scores: random labels."
    items = [told]
    figure = confusion_figure(items, runs_frame(items), ["naive"], nothing_why(items))
    assert figure.svg is None and figure.caption == "Not drawn: no class scores: random labels."


def test_a_long_table_keeps_to_the_largest_batch() -> None:
    many = [f"c{i}" for i in range(MOST_ROWS // 2 + 1)]
    matrix = [[int(i == j) for j in range(len(many))] for i in range(len(many))]
    items = [scored(matrix, config(gpus=gpus), many) for gpus in (1, 2)]
    view = shown(*items)
    assert {row[2] for row in view.rows} == {"32"} and "classification.csv has all" in view.intro
    assert len(table(*items)) == 2 * len(many)


def test_counts_are_summed_over_seeds_and_shares_are_of_the_row() -> None:
    items = [scored(FIRST), scored(SECOND, config(seed=1)),
             scored(FIRST, config(seed=2), status="diverged")]  # fmt: skip
    data = confusion_data(items, runs_frame(items), ["naive"])
    assert data["images"].tolist() == [14, 2, 0, 5, 3, 0, 4, 0, 12]
    assert data["share"].tolist() == pytest.approx(
        [14 / 16, 2 / 16, 0, 5 / 8, 3 / 8, 0, 0.25, 0, 0.75]
    )
    assert data["n"].unique().tolist() == [2]


def test_a_class_without_an_image_has_no_share() -> None:
    items = [scored([[2, 0, 0], [0, 0, 0], [0, 1, 1]])]
    data = confusion_data(items, runs_frame(items), ["naive"])
    assert data[data["true"] == "bee"]["share"].isna().all()
    assert confusion_figure(items, runs_frame(items), ["naive"], "").svg is not None


def test_runs_with_other_classes_are_not_added_up() -> None:
    """Two seeds of one config, between which a folder got another class."""
    items = [scored(FIRST), scored([[1, 0], [0, 2]], config(seed=1), NAMES[:2])]
    data = confusion_data(items, runs_frame(items), ["naive"])
    assert data["n"].tolist() == [1] * (9 + 4)


def drawn(items: Sequence[RunRecord], order: Sequence[str] = ("naive",)) -> Any:
    return confusion_figure(items, runs_frame(items), order, "")


def test_the_drawing_holds_counts_and_shares() -> None:
    figure = drawn([scored(FIRST)])
    root = ElementTree.fromstring(figure.svg)
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [t for t in texts if t and t.isdigit()] == ["6", "2", "1", "3", "4", "4"], "no zero"
    assert texts.count("<cat>") == 2, "a row and a column; a hostile name is text"
    opacities = {
        float(o) for o in re.findall(r"(?<![a-z-])(?:fill-)?opacity: ([\d.]+)", figure.svg)
    }
    assert {0.75, 0.25, 0.5} <= opacities
    assert "sum" in figure.caption and "n = 1" in figure.caption
    page = inline(figure.svg, figure.key, figure.title)
    assert "currentColor" in page
    assert figure.svg == drawn([scored(FIRST)]).svg, "equal records, equal drawings"


def test_what_cannot_be_read_is_not_drawn() -> None:
    names = [f"c{i}" for i in range(MOST_CLASSES + 1)]
    matrix = [[1] * len(names) for _ in names]
    figure = drawn([scored(matrix, names=names)])
    assert figure.svg is None and "too many" in figure.caption
    assert len(figure.data) == len(names) ** 2, "the CSV has it all the same"


def test_a_few_panels_at_the_largest_batch() -> None:
    order = [f"t{i}" for i in range(MOST_PANELS + 2)]
    items = [
        scored(FIRST, config(technique=technique(name), gpus=g)) for name in order for g in (1, 2)
    ]
    figure = drawn(items, order)
    assert figure.data["panel"].nunique() == 2 * len(order)
    assert f"Shown: {MOST_PANELS} of {2 * len(order)} conditions" in figure.caption
    assert figure.svg.count(">predicted<") == MOST_PANELS
    assert "2 ranks, batch 32" in figure.svg and "1 rank, batch 16" not in figure.svg
