"""Throughput against ranks: every run a dot, geometric means, the ideal line."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from analysis.figures import MOST_RUNS, inline, looks
from analysis.topics.scaling.figure import figure, numbers
from tests.analysis.builders import config, record, runs_frame

ITEMS = [
    record(config(gpus=1), images_per_s=100.0),
    record(config(gpus=1, seed=1), images_per_s=121.0),
    record(config(gpus=2), images_per_s=200.0),
    record(config(gpus=2, seed=1), accuracies=[0.1, None], status="diverged", images_per_s=190.0),
]
SEEN = looks(["naive"])


def picked(data: pd.DataFrame, **where: Any) -> pd.DataFrame:
    for name, value in where.items():
        data = data[data[name] == value]
    return data


def test_numbers_with_ideal_from_the_smallest_count() -> None:
    data = numbers(runs_frame(ITEMS))
    assert sorted(picked(data, kind="run")["images_per_s"]) == [100, 121, 190, 200]
    mean = picked(data, kind="mean")
    assert mean["images_per_s"].tolist() == pytest.approx([110.0, 200.0])  # sqrt(100 x 121)
    ideal = picked(data, kind="ideal")
    assert ideal["images_per_s"].tolist() == pytest.approx([110.0, 220.0])
    assert ideal["gpus"].tolist() == [1, 2]


def test_the_caption_says_what_diverged() -> None:
    found = figure(runs_frame(ITEMS), SEEN)
    assert "4 runs, one dot each" in found.caption
    assert "Crosses: diverged runs" in found.caption and ">diverged<" in str(found.svg)
    assert "diverged" not in figure(runs_frame(ITEMS[:3]), SEEN).caption


def test_no_ideal_of_one_rank_count() -> None:
    assert len(picked(numbers(runs_frame(ITEMS[:2])), kind="ideal")) == 0


def test_of_more_than_fifty_runs_only_means_are_drawn() -> None:
    items = [record(config(seed=s), images_per_s=100.0 + s) for s in range(MOST_RUNS + 1)]
    data = numbers(runs_frame(items))
    assert data["kind"].tolist() == ["mean"] and data["n"].tolist() == [MOST_RUNS + 1]
    assert "one dot each" not in figure(runs_frame(items), SEEN).caption


def test_rates_are_written_out_on_the_axis() -> None:
    items = [record(config(gpus=g), images_per_s=12_000.0 * g) for g in (1, 2)]
    assert ">16,384<" in str(figure(runs_frame(items), SEEN).svg)


def test_no_ideal_from_ranks_that_share_cores() -> None:
    items = [record(config(gpus=g), world_changes={"oversubscribed": True}) for g in (1, 2)]
    found = figure(runs_frame(items), SEEN)
    assert len(picked(found.data, kind="ideal")) == 0
    assert "Hollow" in found.caption
    assert "ranks share cores" in str(found.svg)


def test_without_a_throughput_there_is_no_figure() -> None:
    assert figure(runs_frame([record(images_per_s=None)]), SEEN) is None
    assert figure(runs_frame([]), SEEN) is None


def test_a_hostile_name_is_text_in_a_drawing() -> None:
    worlds = [{"device": name} for name in ('<script>alert("x")</script>', "$x$ CPU")]
    items = [record(config(seed=s), world_changes=w) for s, w in enumerate(worlds)]
    found = figure(runs_frame(items), SEEN)
    assert found.svg is not None
    ElementTree.fromstring(found.svg)
    page = inline(found.svg, found.key, found.title)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert ">$x$ CPU</text>" in page, "a dollar sign starts no formula"
