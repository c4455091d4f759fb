"""Efficiency against ranks: intervals, nodes, forecast; every number is one of the tables."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from analysis.plots.figure import Figure, inline
from analysis.table import Table
from analysis.topics.scaling import how_far
from tests.analysis import planned
from tests.analysis.builders import config, record
from train.record.run import RunRecord


def run(gpus: int, seed: int, nodes: int = 1, name: str = "naive", **changes: Any) -> RunRecord:
    hosts = tuple(f"node{rank * nodes // gpus}" for rank in range(gpus))
    world = {"nodes": nodes, "hostnames": hosts} | changes.pop("world", {})
    rate = 100 * gpus * 0.9 ** (gpus - 1) + seed
    return record(config(name, gpus=gpus, seed=seed, batch_per_rank=2, **changes),
                  images_per_s=rate, world_changes=world)  # fmt: skip


def drawn(*items: RunRecord) -> Figure | None:
    return how_far.figure(planned.sweep(items))


def sweep(*counts: int, **changes: Any) -> list[RunRecord]:
    return [run(gpus, seed, **changes) for gpus in counts for seed in (0, 1)]


def tips(found: Figure) -> list[str]:
    titles = ElementTree.fromstring(str(found.svg)).iter("{http://www.w3.org/2000/svg}title")
    return [str(title.text) for title in titles]


def test_each_count_has_its_efficiency_with_its_interval() -> None:
    found = drawn(*sweep(1, 2, 4))
    assert found is not None and len(tips(found)) == 3
    assert tips(found)[0] == "naive, 1 rank: 1.00, 2 runs" and "(n = 2 completed" in found.caption
    assert found.data["efficiency"].tolist() == pytest.approx([1, 0.9, 0.73], abs=0.01)
    assert found.data["efficiency_low"][1] < 0.9 < found.data["efficiency_high"][1]
    svg = str(found.svg)
    assert all(f">{text}<" in svg for text in ("ideal", "0.9", "naive", "ranks (log)", "4"))
    assert "several nodes" not in svg and "forecast" not in found.caption


@pytest.mark.parametrize(("counts", "split"), [((1, 2, 4), 4), ((2, 4, 8), 4)])
def test_the_border_of_a_node_is_marked(counts: tuple[int, ...], split: int) -> None:
    items = [run(gpus, seed, nodes=2 if gpus >= split else 1) for gpus in counts for seed in (0, 1)]
    found = drawn(*items)
    assert found is not None and ">several nodes<" in str(found.svg)
    assert "ranks are on several nodes" in found.caption


def test_where_a_count_is_on_one_node_and_on_several_there_is_no_border() -> None:
    spread = [*sweep(1, 2, name="lamb"), *sweep(4, name="lamb", nodes=2)]
    found = drawn(*sweep(1, 2, 4), *spread)
    assert found is not None and found.data["panel"].nunique() == 1
    assert "several nodes<" not in str(found.svg)


def test_a_forecast_is_dashed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"series": 0, "technique_label": "naive", "context": "", "scaling": "weak",
           "batch_per_rank": 2, "global_batch": 16, "gpus": 8, "efficiency": 0.5,
           "efficiency_low": 0.4, "efficiency_high": 0.6}  # fmt: skip
    table = Table("forecast", "", (), pd.DataFrame([row, row | {"series": 7, "gpus": 16}]))
    monkeypatch.setattr(how_far, "ahead", lambda of: table)
    found = drawn(*sweep(1, 2, 4))
    assert found is not None and "a model's forecast" in found.caption
    assert found.data["kind"].tolist() == ["measured"] * 3 + ["forecast"]
    assert tips(found)[-1] == "naive, 8 ranks: 0.50 (0.40 to 0.60), forecast"
    assert str(found.svg).count(">naive<") == 1, "at the end of the forecast alone"


def test_batches_and_contexts_are_panels_of_their_own() -> None:
    found = drawn(*sweep(1, 2), *sweep(1, 2, framework="mirrored"))
    assert found is not None and found.data["panel"].nunique() == 2
    assert ">mirrored<" in str(found.svg)


def test_without_an_efficiency_there_is_no_figure() -> None:
    assert drawn(*sweep(2)) is None and drawn() is None
    assert drawn(*sweep(1, 2, world={"oversubscribed": True})) is None


def test_a_hostile_name_is_text_in_a_drawing() -> None:
    names = ('<script>alert("x")</script>', "$x$ CPU")
    found = drawn(*(run(gpus, seed, world={"device": names[seed // 2]})
                    for gpus in (1, 2) for seed in range(4)))  # fmt: skip
    assert found is not None
    page = inline(str(found.svg), found.key, found.title)
    assert "<script" not in page and "&lt;script&gt;" in page
    assert ">$x$ CPU</text>" in page, "a dollar sign starts no formula"
