"""Figures hold the numbers that they show, are deterministic, and leave no trace behind."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import matplotlib as mpl
import pandas as pd
import pytest

from analysis.curves import ACCURACY, ACCURACY_IN_TIME, LOSS, curve_data, curves
from analysis.frames import epochs_frame, runs_frame
from analysis.plots import INK, PAPER, Look, inline, looks, standalone
from analysis.targets import with_clock
from analysis.throughput import throughput_data, throughput_figure
from tests.analysis.builders import config, record
from train.config.run import Target

ITEMS = [
    record(config(gpus=1), accuracies=[0.2, 0.4, 0.6], images_per_s=100.0),
    record(config(gpus=1, seed=1), accuracies=[0.2, 0.6, 0.8], images_per_s=121.0),
    record(config(gpus=2), accuracies=[0.1, 0.3, 0.5], images_per_s=200.0),
    record(config(gpus=2, seed=1), accuracies=[0.1, None], status="diverged", images_per_s=190.0),
]
SEEN = looks(["naive"])


def frames(items=ITEMS) -> tuple[pd.DataFrame, pd.DataFrame]:
    runs = runs_frame(items)
    return runs, with_clock(epochs_frame(items, runs))


def picked(data: pd.DataFrame, **where) -> pd.DataFrame:
    for name, value in where.items():
        data = data[data[name] == value]
    return data


def test_curve_numbers_are_every_run_and_the_mean_of_completed_ones() -> None:
    _, epochs = frames()
    data = curve_data(epochs[epochs["validation_accuracy"].notna()], "validation_accuracy")
    assert len(picked(data, kind="run")) == 3 + 3 + 3 + 1
    mean = picked(data, kind="mean", gpus=1)
    assert mean["value"].tolist() == pytest.approx([0.2, 0.5, 0.7])
    assert mean["n"].tolist() == [2, 2, 2]
    alone = picked(data, kind="mean", gpus=2)
    assert alone["value"].tolist() == pytest.approx([0.1, 0.3, 0.5]), "the diverged run is not in"
    assert data["panel"].unique().tolist() == ["1 rank, batch 16", "2 ranks, batch 32"]


def test_a_mean_ends_with_the_first_of_its_runs() -> None:
    """Those that go on after a target was met are the slow ones."""
    short = [record(config(seed=0), accuracies=[0.2, 0.7]), record(config(seed=1))]
    _, epochs = frames(short)
    data = curve_data(epochs[epochs["validation_accuracy"].notna()], "validation_accuracy")
    assert len(picked(data, kind="run")) == 2 + 3
    assert picked(data, kind="mean")["epoch"].tolist() == [1, 2]


def test_curves_have_the_training_seconds_so_far() -> None:
    """320 images an epoch at 100 and 121 images/s; a mean stands at the mean of its runs."""
    figure = curves(frames()[1], ACCURACY_IN_TIME, SEEN, "")
    first, second = ([320 * e / rate for e in (1, 2, 3)] for rate in (100, 121))
    runs = picked(figure.data, kind="run", gpus=1)
    assert picked(runs, seed=0)["train_s_so_far"].tolist() == pytest.approx(first)
    mean = picked(figure.data, kind="mean", gpus=1)["train_s_so_far"].tolist()
    assert mean == pytest.approx([(a + b) / 2 for a, b in zip(first, second, strict=True)])
    assert "Seconds are of training alone" in figure.caption
    assert ">training seconds<" in figure.svg
    assert ">training seconds<" not in curves(frames()[1], ACCURACY, SEEN, "").svg


def test_caption_states_n_and_what_diverged() -> None:
    figure = curves(frames()[1], ACCURACY, SEEN, "")
    assert "Each of the 4 runs" in figure.caption
    assert "n = 1 to 2" in figure.caption
    assert "1 diverged" in figure.caption
    assert "No interval" in figure.caption


def test_a_long_panel_name_stays_above_its_own_panel() -> None:
    goal = Target(train_accuracy=0.75, validation_accuracy=0.25, within_s=240)
    items = [record(config(target=goal), target=None), record(config(framework="mirrored"))]
    figure = curves(frames(items)[1], ACCURACY, SEEN, "")
    heads = re.findall(r">([^<]*(?:horovod|train 0.75|within)[^<]*)<", figure.svg)
    assert len(heads) >= 2, "over several lines"
    assert max(map(len, heads)) <= 34


def test_nothing_to_draw_says_why() -> None:
    items = [record(accuracies=[None] * 3)]
    figure = curves(frames(items)[1], ACCURACY, SEEN, "random labels")
    assert figure.svg is None
    assert figure.caption == "Not drawn: random labels."
    assert len(figure.data) == 0


def test_throughput_numbers_with_ideal_from_the_smallest_count() -> None:
    data = throughput_data(frames()[0])
    assert sorted(picked(data, kind="run")["images_per_s"]) == [100, 121, 190, 200]
    mean = picked(data, kind="mean")
    assert mean["images_per_s"].tolist() == pytest.approx([110.0, 200.0])  # sqrt(100 x 121)
    ideal = picked(data, kind="ideal")
    assert ideal["images_per_s"].tolist() == pytest.approx([110.0, 220.0])
    assert ideal["gpus"].tolist() == [1, 2]


def test_rates_are_written_out_on_the_axis() -> None:
    items = [record(config(gpus=g), images_per_s=12_000.0 * g) for g in (1, 2)]
    assert ">16,384<" in throughput_figure(runs_frame(items), SEEN, "").svg


def test_no_ideal_from_ranks_that_share_cores() -> None:
    items = [record(config(gpus=g), world_changes={"oversubscribed": True}) for g in (1, 2)]
    figure = throughput_figure(runs_frame(items), SEEN, "")
    assert len(picked(figure.data, kind="ideal")) == 0
    assert "Hollow" in figure.caption
    assert "ranks share cores" in figure.svg


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    before = dict(mpl.rcParams)
    runs, epochs = frames()
    curves(epochs, LOSS, SEEN, "")
    throughput_figure(runs, SEEN, "")
    assert dict(mpl.rcParams) == before
    from matplotlib import _pylab_helpers

    assert not _pylab_helpers.Gcf.figs, "no figure is left open in pyplot"


def test_equal_records_give_equal_files() -> None:
    first, second = (curves(frames()[1], ACCURACY, SEEN, "").svg for _ in range(2))
    assert first == second


def test_a_wide_range_of_losses_is_logarithmic_and_labelled_plainly() -> None:
    steep = record(config(epochs=4)).model_dump()
    for epoch, loss in zip(steep["epochs"], (2.0, 0.5, 0.05, 0.01), strict=True):
        epoch["train_loss"] = loss
    items = [type(ITEMS[0]).model_validate(steep)]
    figure = curves(frames(items)[1], LOSS, SEEN, "")
    assert "Logarithmic axis" in figure.caption
    assert "mathdefault" not in figure.svg
    assert ">0.05<" in figure.svg


def test_inline_drawings_share_a_page() -> None:
    runs, epochs = frames()
    drawn = [curves(epochs, ACCURACY, SEEN, ""), throughput_figure(runs, SEEN, "")]
    pages = [inline(figure.svg, figure.key, figure.title) for figure in drawn]
    ids = [found for page in pages for found in re.findall(r'\bid="([^"]+)"', page)]
    assert len(ids) == len(set(ids))
    for page in pages:
        used = set(re.findall(r'(?:href="|url\()#([^")]+)', page))
        assert used <= set(ids)
        assert used, "clip paths and markers are used by reference"
        assert "http" not in page
        assert INK not in page
        assert PAPER not in page
        assert "currentColor" in page
        assert page.startswith("<svg ")


def test_a_file_of_its_own_is_xml_with_ink_on_white() -> None:
    text = standalone(curves(frames()[1], ACCURACY, SEEN, "").svg)
    ElementTree.fromstring(text)
    assert "#ffffff" in text
    assert INK not in text


def test_a_hostile_name_is_text_in_a_drawing() -> None:
    worlds = [{"device": name} for name in ('<script>alert("x")</script>', "$x$ CPU")]
    items = [record(config(seed=s), world_changes=w) for s, w in enumerate(worlds)]
    figure = throughput_figure(runs_frame(items), SEEN, "")
    ElementTree.fromstring(figure.svg)
    page = inline(figure.svg, figure.key, figure.title)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert ">$x$ CPU</text>" in page, "a dollar sign starts no formula"


def test_techniques_are_told_apart_beyond_the_palette() -> None:
    many = looks([f"t{i}" for i in range(28)])
    assert len({(look.color, look.marker) for look in many.values()}) == 28
    assert isinstance(many["t0"], Look)
