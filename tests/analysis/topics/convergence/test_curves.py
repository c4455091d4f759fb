"""Curves hold the numbers that they show, and say what of them is left out."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from analysis.plots.figure import Figure, looks
from analysis.topics.convergence.curves import MOST_PANELS, accuracy, figure, numbers
from tests.analysis.builders import config, epochs_frame, record
from tests.analysis.planned import sweep
from train.config.run import Target
from train.record.run import RunRecord

ITEMS = [
    record(config(gpus=1), accuracies=[0.2, 0.4, 0.6], images_per_s=100.0),
    record(config(gpus=1, seed=1), accuracies=[0.2, 0.6, 0.8], images_per_s=121.0),
    record(config(gpus=2), accuracies=[0.1, 0.3, 0.5], images_per_s=200.0),
    record(config(gpus=2, seed=1), accuracies=[0.1, None], status="diverged", images_per_s=190.0),
]
SEEN = looks(["naive"])


def drawn(items: list[RunRecord], **changes: Any) -> Figure | None:
    return figure(epochs_frame(items), SEEN, **changes)


def accuracies(items: list[RunRecord]) -> pd.DataFrame:
    epochs = epochs_frame(items)
    return numbers(epochs[epochs["validation_accuracy"].notna()])


def test_means_and_ends_are_of_completed_runs() -> None:
    data = accuracies(ITEMS)
    both, alone = (data[data["gpus"] == ranks] for ranks in (1, 2))
    assert both["value"].tolist() == pytest.approx([0.2, 0.5, 0.7])
    assert both["low"].tolist() == [0.2, 0.4, 0.6] and both["high"].tolist() == [0.2, 0.6, 0.8]
    assert both["n"].tolist() == [2, 2, 2]
    assert alone["value"].tolist() == pytest.approx([0.1, 0.3, 0.5]), "the diverged run is not in"
    assert data["panel"].unique().tolist() == ["1 rank, batch 16", "2 ranks, batch 32"]


def test_a_mean_ends_with_the_first_of_its_runs() -> None:
    """Those that go on after a target was met are the slow ones."""
    data = accuracies([record(config(seed=0), accuracies=[0.2, 0.7]), record(config(seed=1))])
    assert data["epoch"].tolist() == [1, 2]


def test_curves_have_the_training_seconds_so_far() -> None:
    """320 images an epoch at 100 and 121 images/s; a mean stands at the mean of its runs."""
    found = drawn(ITEMS, against="train_s_so_far")
    first, second = ([320 * e / rate for e in (1, 2, 3)] for rate in (100, 121))
    mean = found.data.loc[found.data["gpus"] == 1, "train_s_so_far"].tolist()
    assert mean == pytest.approx([(a + b) / 2 for a, b in zip(first, second, strict=True)])
    assert "Seconds are of training alone" in found.caption
    assert found.svg and ">training seconds<" in found.svg
    assert ">training seconds<" not in str(drawn(ITEMS).svg)


def test_caption_states_n_and_what_diverged() -> None:
    caption = drawn(ITEMS).caption
    assert "n = 1 to 2, as far as all of them ran; band" in caption
    assert caption.endswith(" Not drawn: 1 run that diverged.")
    caption = drawn(ITEMS[:1]).caption
    assert "diverged" not in caption and "band" not in caption


def test_panels_that_are_left_out_are_said() -> None:
    items = [record(config(gpus=1, batch_per_rank=2**i)) for i in range(MOST_PANELS + 1)]
    found = drawn(items)
    assert found.data["panel"].nunique() == MOST_PANELS
    assert "1 rank, batch 1" not in set(found.data["panel"]), "the largest batches are shown"
    assert f"Shown: {MOST_PANELS} of {MOST_PANELS + 1} panels" in found.caption


def test_a_long_panel_name_stays_above_its_own_panel() -> None:
    goal = Target(train_accuracy=0.75, validation_accuracy=0.25, within_s=240)
    items = [record(config(target=goal), target=None), record(config(framework="mirrored"))]
    svg = str(accuracy(sweep(items[:1])).svg) + str(drawn(items).svg)
    heads = re.findall(r">([^<]*(?:horovod|training|within)[^<]*)<", svg)
    assert len(heads) >= 2, "over several lines"
    assert max(map(len, heads)) <= 34 and ">target 0.25<" in svg


@pytest.mark.parametrize("items", [[record(accuracies=[None] * 3)], [], ITEMS[3:]])
def test_without_a_value_of_a_completed_run_there_is_no_figure(items: list[RunRecord]) -> None:
    assert drawn(items) is None
