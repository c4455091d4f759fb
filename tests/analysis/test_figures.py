"""Drawings are deterministic, can stand on any page, and leave no trace behind."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from analysis.figures import (
    INK,
    PAPER,
    Figure,
    Look,
    Tips,
    inline,
    left_out,
    looks,
    looks_of,
    small_multiples,
    standalone,
    style,
    to_svg,
)
from analysis.topics.convergence import curves
from analysis.topics.scaling import figure as throughput
from tests.analysis.builders import config, epochs_frame, record, runs_frame

ITEMS = [
    record(config(gpus=gpus, seed=seed), images_per_s=100.0 * gpus + seed)
    for gpus in (1, 2)
    for seed in (0, 1)
]
SEEN = looks(["naive"])


def drawn() -> list[Figure]:
    runs = runs_frame(ITEMS)
    epochs = epochs_frame(ITEMS)
    return [curves.figure(epochs, curves.ACCURACY, SEEN), throughput.figure(runs, SEEN)]


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    before = dict(mpl.rcParams)
    drawn()
    assert dict(mpl.rcParams) == before
    from matplotlib import _pylab_helpers

    assert not _pylab_helpers.Gcf.figs, "no figure is left open in pyplot"


def test_equal_records_give_equal_files() -> None:
    first, second = ([figure.svg for figure in drawn()] for _ in range(2))
    assert first == second


def test_inline_drawings_share_a_page() -> None:
    pages = [inline(str(figure.svg), figure.key, figure.title) for figure in drawn()]
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
    text = standalone(str(drawn()[0].svg))
    ElementTree.fromstring(text)
    assert "#ffffff" in text
    assert INK not in text


def test_techniques_are_told_apart_beyond_the_palette() -> None:
    many = looks([f"t{i}" for i in range(28)])
    assert len({(look.color, look.marker) for look in many.values()}) == 28
    assert isinstance(many["t0"], Look)


def test_a_legend_names_what_is_there_in_the_order_of_all() -> None:
    seen = looks(["a", "b", "c"])
    data = runs_frame(ITEMS).assign(technique=["c", "a", "c", "a"])
    assert list(looks_of(seen, data)) == ["a", "c"]


@pytest.mark.parametrize(("panels", "shape"), [(1, (1, 1)), (4, (2, 2)), (5, (2, 3)), (8, (2, 4))])
def test_panels_fill_their_rows_where_they_can(panels: int, shape: tuple[int, int]) -> None:
    with style():
        canvas, axes = small_multiples(panels, 1, share_y=True)
    assert len(axes) == panels
    assert axes[0].get_gridspec().get_geometry() == shape
    assert sum(axis.get_visible() for axis in canvas.axes) == panels


def test_a_tip_is_text_in_its_part() -> None:
    tips = Tips()
    with style():
        canvas, (axis,) = small_multiples(1, 1, share_y=False)
        (line,) = axis.plot([0, 1], [0, 1])
        tips.add(line, "<b> & 1 run")
        svg = to_svg(canvas, tips)
    ElementTree.fromstring(svg)
    assert '<g id="tip0"><title>&lt;b&gt; &amp; 1 run</title>' in svg


def test_what_is_left_out_is_said_where_something_is() -> None:
    assert left_out(3, 3, "panels") == ""
    assert left_out(6, 1200, "panels") == " Shown: 6 of 1,200 panels."
