"""Accuracy against the batch: means with intervals, each with its tip."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from analysis.plots.figure import Figure, looks
from analysis.topics.convergence import reached
from analysis.topics.convergence.reached import MOST_PANELS, by_batch
from tests.analysis.builders import config, record
from tests.analysis.planned import sweep
from train.record.run import RunRecord


def run(seed: int, accuracy: float | None, name: str = "naive", **changes: Any) -> RunRecord:
    return record(config(name, seed=seed, **changes), accuracies=[0.1, 0.2, accuracy])


def drawn(*items: RunRecord) -> Figure:
    return by_batch(reached.conditions(sweep(items)).data, looks(("naive", "lamb")))


def tips(found: Figure) -> list[str]:
    assert found.svg is not None
    titles = ElementTree.fromstring(found.svg).iter("{http://www.w3.org/2000/svg}title")
    return [title.text for title in titles if title.text]


def batches(*sizes: int, name: str = "naive", **changes: Any) -> list[RunRecord]:
    return [run(s, 0.4 + s / 10, name, batch_per_rank=size, **changes)
            for size in sizes for s in (0, 1)]  # fmt: skip


def test_with_several_batches_it_is_a_point_per_batch() -> None:
    items = batches(16, 64)
    found = drawn(*items, *batches(16, 64, name="lamb"))
    assert found.title == "Accuracy from batch 16 to 64"
    assert len(tips(found)) == 4
    assert tips(found)[1].startswith("naive, batch 64: 0.450 (") and ">64<" in str(found.svg)
    assert "95 % t interval" in found.caption
    assert "interval" not in drawn(*items[::2]).caption, "of one run each"


def lines(found: Figure) -> int:
    """Lines from one batch to another: points, ticks and intervals have none of two batches."""
    root = ElementTree.fromstring(str(found.svg))
    paths = root.iter("{http://www.w3.org/2000/svg}path")
    wide = [p.get("d", "") for p in paths if "stroke-width: 1.4" in (p.get("style") or "")]
    return sum(d.count("L") == 1 for d in wide)


def test_no_line_joins_what_differs_in_more_than_the_batch() -> None:
    one = drawn(*batches(16, 64))
    two = drawn(*batches(16, 64), *batches(16, 64, framework="mirrored"))
    assert (lines(one), lines(two)) == (1, 2)
    growing = drawn(*batches(16), *[run(s, 0.5, accumulation=4) for s in (0, 1)])
    assert lines(growing) == 1, "accumulation is how the batch was made"


def test_panels_are_apart_by_ranks_and_those_that_are_left_out_are_said() -> None:
    ranks = [
        run(0, 0.5, gpus=g, batch_per_rank=size)
        for g in range(1, MOST_PANELS + 2) for size in (16, 32)
    ]  # fmt: skip
    found = drawn(*ranks)
    assert f"Shown: {MOST_PANELS} of {MOST_PANELS + 1} panels" in found.caption
    assert ">2 ranks<" in str(found.svg) and ">1 rank<" not in str(found.svg)
    weak = drawn(*(run(0, 0.5, gpus=ranks) for ranks in (1, 2, 4)))
    assert len(tips(weak)) == 3 and "1, 2, 4 ranks" in str(weak.svg), "one batch each: one line"


@pytest.mark.parametrize("items", [[run(0, 0.5)], [run(0, None), run(0, None, batch_per_rank=64)]])
def test_without_accuracies_of_two_batches_there_is_no_figure(items: list[RunRecord]) -> None:
    assert drawn(*items) is None
