"""What the plots share: names at the ends of lines, forests, bars, matrices."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from analysis.plots.canvas import shortened, small_multiples
from analysis.plots.figure import PAPER, Look, style
from analysis.plots.lines import Axis, Line, lines
from analysis.plots.matrix import squares
from analysis.plots.rows import Bar, Point, bars, forest

BLUE, LINEAR = Look("#0072b2", "o"), Axis("y")
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> dict[str, tuple[float, float]]:
    """Text -> where it stands, in points from the top left."""
    found = {}
    for text in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        moved = re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", text.get("transform") or "")
        x, y = moved.groups() if moved else (text.get("x"), text.get("y"))
        found[str(text.text)] = (float(str(x)), float(str(y)))
    return found


@pytest.mark.parametrize("values", [[0.5] * 12, [1.0, 0.99, 0.98, 0.1, 0.11, 0.0]])
def test_names_stand_at_the_ends_of_lines_in_their_order_and_apart(values: list[float]) -> None:
    drawn = [Line([1, 2], [0.5, value], BLUE, f"line {at:02}") for at, value in enumerate(values)]
    found = texts(lines({"": drawn}, Axis("x"), LINEAR))
    names = sorted((y, name) for name, (_, y) in found.items() if name.startswith("line"))
    assert len(names) == len(values), "each is there"
    assert [name for _, name in names] == [
        line.name for line in sorted(drawn, key=lambda one: -one.y[1])
    ] or len(set(values)) == 1  # fmt: skip
    apart = np.diff([y for y, _ in names])
    assert apart.min() >= 8, "no text of eight points lies on another"


@pytest.mark.parametrize("at", [512, 3])
def test_a_point_is_drawn_where_it_is(at: int) -> None:
    """Twelve lines at the same batches: no one is moved sideways."""
    drawn = [Line([at, 8 * at], [0.1 * n, 0.2 * n], BLUE, f"t{n}") for n in range(1, 13)]
    svg = lines({"": drawn}, Axis("batch", "octaves"), LINEAR)
    uses = [use.get("x") for use in ElementTree.fromstring(svg).iter(f"{SVG}use")]
    columns = {x for x in uses if uses.count(x) >= len(drawn)}
    assert len(columns) == 2 and f">{at}<" in svg and ">batch (log)<" in svg


def test_interval_bars_at_one_place_stand_side_by_side() -> None:
    """Seen: of several techniques at two rank counts the last one hid the others."""
    drawn = [Line([1, 2], [0.9, 0.8], BLUE, f"t{n}", [0.8, 0.7], [1.0, 0.9], bars=True,
                  tips=["", ""]) for n in range(3)]  # fmt: skip
    svg = lines({"": drawn}, Axis("ranks", "octaves"), LINEAR)
    bars = re.findall(r'd="M ([\d.]+) [\d.]+ \nL \1 [\d.]+ \n" clip-path=[^>]*#0072b2', svg)
    apart = np.diff(sorted(map(float, bars)))
    assert len(bars) == 6 and apart.min() >= 4
    points = {use.get("x") for use in ElementTree.fromstring(svg).iter(f"{SVG}use")}
    assert set(bars) <= points, "each with its point"
    assert ">1<" in svg and ">2<" in svg, "the data are where they are"


def test_a_batch_alone_stands_inside_its_panel() -> None:
    """It stood left of the page."""
    one = Line([512], [0.436], BLUE, "batch_norm (bn_statistics=reestimated)", [0.428], [0.444])
    two = Line([512, 4096], [0.6, 0.5], BLUE, "t", [0.5, 0.4], [0.7, 0.6])
    svg = lines({"one": [one], "two": [two]}, Axis("batch", "octaves"), LINEAR)
    uses = [float(x) for x in re.findall('<use [^>]* x="(.+?)"', svg.split('id="axes_2"')[0])]
    assert min(uses) > 20


def test_each_panel_names_its_own_lines() -> None:
    panels = {name: [Line([1, 2], [1, 2], BLUE, f"of {name}")] for name in ("a", "b")}
    found = texts(
        lines(panels, Axis("x"), LINEAR, levels=[("ideal", 1.5)], borders={"b": ("n", 1.5)})
    )
    assert {"a", "b", "of a", "of b", "ideal", "n"} <= set(found)


def test_a_line_without_a_value_has_no_name() -> None:
    svg = lines({"": [Line([1, 2], [None, np.nan], BLUE, "gone"), Line([1], [1], BLUE, "there")]},
                Axis("x"), LINEAR)  # fmt: skip
    assert ">there<" in svg and ">gone<" not in svg


def test_a_long_name_loses_its_middle() -> None:
    assert shortened("nesterov (optimizer.weight_decay=0.0005)") == "nesterov (weight_decay=0.0005)"
    long = "nesterov" + 20 * "y" + "_decay=0.0005)"
    assert shortened(long) == "nesterovyyyy…yyyyyyyyy_decay=0.0005)"


def test_a_forest_has_a_row_each_with_what_is_said_of_it() -> None:
    tip = """a "b" <c> & 'd'"""
    points = [Point("a", -0.1, -0.2, 0.1, BLUE, tip, "-0.1 undecided", hollow=True),
              Point("b (weight_decay=0.00050001) of a long name", 0.3, None, None, BLUE, "tip b",
                    "+0.3 higher")]  # fmt: skip
    found = texts(svg := forest(points, "difference"))
    assert found["name"][1] < found["a"][1], "in two lines, and the last one is at the top"
    assert {"-0.1 undecided", "+0.3 higher", "difference"} <= set(found)
    parts = [*ElementTree.fromstring(svg).iter()]
    titles = [part.text for part in parts if part.tag == f"{SVG}title"]
    assert titles == [tip.replace('"', "\u201d"), "tip b"]
    assert not [part for part in parts if "tip" in part.get("id", "")]


def test_bars_have_a_key_and_tips() -> None:
    svg = bars([Bar("s", 0, 1, "#0072b2", "tip s")], ["r", "s"], "ms", {"part": "#0072b2"})
    assert {"part", "r", "s", "ms"} <= set(texts(svg)) and "<title>tip s</title>" in svg


def test_an_empty_square_of_a_matrix_shows_the_page() -> None:
    fills = np.array([[1.0, np.nan], [0.25, 0.0]])
    svg = squares(fills, [["1", "2"], ["3", "4"]], ["a", "b"], {(0, 1)}, "sends", "receives")
    assert {"1", "3", "4", "a", "b"} <= set(texts(svg)) and ">2<" not in svg
    assert PAPER not in re.sub("<g id=.patch_1.>.*?</g>", "", svg, flags=re.DOTALL), "texts stay"
    for size, written in ((16, {"7", "a"}), (17, {"a"}), (65, set[str]())):
        svg = squares(np.ones((size, size)), [["7"] * size] * size, ["a"] * size, (), "s", "r")
        assert set(texts(svg)) == {*written, "s", "r"}


@pytest.mark.parametrize(
    ("panels", "wide", "shape"),
    [(1, 2.6, (1, 1)), (2, 2.6, (1, 2)), (5, 2.1, (3, 2)), (3, 5.0, (3, 1))],
)
def test_two_panels_share_a_row_where_they_are_narrow_enough(
    panels: int, wide: float, shape: tuple[int, int]
) -> None:
    with style():
        canvas, axes = small_multiples(panels, wide)
    assert len(axes) == panels
    assert axes[0].get_gridspec().get_geometry() == shape
    assert sum(axis.get_visible() for axis in canvas.axes) == panels
