"""Confusion matrices as drawn: counts as text, shares as opacity, and what is not drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pandas as pd
import pytest

from analysis.figures import Figure, inline
from analysis.topics.classes.confusion import MOST_CLASSES, MOST_PANELS, figure
from tests.analysis.builders import config, frames_of_records, record, technique
from tests.analysis.topics.classes.scored import FIRST, NAMES, SECOND, scored
from train.record.run import RunRecord


def numbers(*items: RunRecord) -> pd.DataFrame:
    return frames_of_records(items)["confusion"]


def drawn(items: Sequence[RunRecord]) -> Figure:
    return figure(numbers(*items))


def texts(found: Figure) -> list[str]:
    root = ElementTree.fromstring(str(found.svg))
    return [e.text for e in root.iter("{http://www.w3.org/2000/svg}text") if e.text]


def test_counts_are_summed_over_seeds_and_shares_are_of_the_row() -> None:
    items = [scored(FIRST), scored(SECOND, config(seed=1)),
             scored(FIRST, config(seed=2), status="diverged")]  # fmt: skip
    data = numbers(*items)
    assert data["images"].tolist() == [14, 2, 0, 5, 3, 0, 4, 0, 12]
    assert data["share"].tolist() == pytest.approx(
        [14 / 16, 2 / 16, 0, 5 / 8, 3 / 8, 0, 0.25, 0, 0.75]
    )
    assert data["n"].unique().tolist() == [2]


def test_a_class_without_an_image_has_no_share() -> None:
    items = [scored([[2, 0, 0], [0, 0, 0], [0, 1, 1]])]
    data = numbers(*items)
    assert data[data["true"] == "bee"]["share"].isna().all()
    assert figure(data).svg is not None


def test_runs_with_other_classes_are_not_added_up() -> None:
    """Two seeds of one config, between which a folder got another class."""
    items = [scored(FIRST), scored([[1, 0], [0, 2]], config(seed=1), NAMES[:2])]
    data = numbers(*items)
    assert data["n"].tolist() == [1] * (9 + 4)
    assert data["class_set"].tolist() == [1] * 9 + [2] * 4


def test_each_set_of_classes_has_a_matrix_of_its_own() -> None:
    names = ("fox", *NAMES[:2])
    found = drawn([scored(FIRST), scored(SECOND, config(seed=1), names)])
    written = texts(found)
    assert written.count("predicted") == 2
    counts = [text for text in written if text.isdigit()]
    assert counts == ["6", "2", "1", "3", "4", "4", "8", "4", "8"]
    assert written.count("ant") == 4 and written.count("fox") == written.count("<cat>") == 2
    assert {"class set 1", "class set 2"} <= set(written)
    assert "Class sets differ where the data set was changed" in found.caption
    assert "class set" not in drawn([scored(FIRST)]).caption.lower()


def test_the_drawing_holds_counts_and_shares() -> None:
    found = drawn([scored(FIRST)])
    written = texts(found)
    assert [t for t in written if t.isdigit()] == ["6", "2", "1", "3", "4", "4"], "no zero"
    assert written.count("<cat>") == 2, "a row and a column; a hostile name is text"
    opacities = {
        float(o) for o in re.findall(r"(?<![a-z-])(?:fill-)?opacity: ([\d.]+)", str(found.svg))
    }
    assert {0.75, 0.25, 0.5} <= opacities
    assert "summed" in found.caption and "n = 1" in found.caption
    page = inline(str(found.svg), found.key, found.title)
    assert "currentColor" in page
    assert found.svg == drawn([scored(FIRST)]).svg, "equal records, equal drawings"


def test_what_cannot_be_read_is_not_drawn() -> None:
    names = [f"c{i}" for i in range(MOST_CLASSES + 1)]
    matrix = [[1] * len(names) for _ in names]
    found = drawn([scored(matrix, names=names)])
    assert found.svg is None and "too many" in found.caption
    assert len(found.data) == len(names) ** 2, "the CSV has it all the same"


def test_a_few_panels_at_the_largest_batch() -> None:
    order = [f"t{i}" for i in range(MOST_PANELS + 2)]
    items = [
        scored(FIRST, config(technique=technique(name), gpus=g)) for name in order for g in (1, 2)
    ]
    found = drawn(items)
    assert found.data["condition"].nunique() == 2 * len(order)
    assert f"Shown: {MOST_PANELS} of {2 * len(order)} matrices" in found.caption
    assert str(found.svg).count(">predicted<") == MOST_PANELS
    assert "2 ranks, batch 32" in str(found.svg) and "1 rank, batch 16" not in str(found.svg)


def test_without_scores_nothing_is_drawn() -> None:
    assert drawn([record()]) is None
