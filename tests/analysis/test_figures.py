"""Drawings are deterministic, can stand on any page, and leave no trace behind."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from analysis.plots.figure import (
    GREY,
    GRID,
    INK,
    PALETTE,
    PAPER,
    PART_PALETTE,
    Figure,
    inline,
    left_out,
    looks,
    roles,
)
from analysis.topics.convergence import by_batch, curves, reached
from tests.analysis.builders import config, epochs_frame, record
from tests.analysis.planned import sweep

ITEMS = [
    record(config(gpus=gpus, seed=seed), images_per_s=100.0 * gpus + seed)
    for gpus in (1, 2)
    for seed in (0, 1)
]
SEEN = looks(["naive"])


def drawn() -> list[Figure]:
    epochs = epochs_frame(ITEMS)
    found = reached.conditions(sweep(ITEMS))
    return [curves.figure(epochs, SEEN), by_batch.figure(found.data, SEEN)]


def test_a_drawing_is_a_file_with_ink_on_white_or_shares_a_page() -> None:
    pages = []
    for figure in drawn():
        svg = str(figure.svg)
        ElementTree.fromstring(svg)
        assert PAPER in svg and INK in svg
        pages.append(inline(svg, figure.key, figure.title))
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


def test_techniques_are_told_apart_beyond_the_palette() -> None:
    many = looks([f"t{i}" for i in range(28)])
    assert len({(look.color, look.marker) for look in many.values()}) == 28


def test_of_many_techniques_the_chosen_are_coloured_and_the_rest_are_pale() -> None:
    labels = [f"t{i:02}" for i in range(12)]
    found = roles(labels, "t00", ["t11", "t03"])
    coloured = {label for label, look in found.items() if look.color in PALETTE}
    assert coloured == {"t03", "t11"} and found["t00"].color == GREY
    assert {label for label, look in found.items() if look.alpha < 1} == {*labels[1:11]} - {"t03"}


def test_of_a_few_techniques_all_are_coloured() -> None:
    found = roles(["a", "naive", "b"], "naive", [])
    assert found["naive"].color == GREY and not any(look.alpha < 1 for look in found.values())
    assert found["a"].color != found["b"].color
    assert GREY not in {look.color for look in roles(["a", "b"], None, []).values()}


def test_parts_of_a_step_have_no_colour_of_a_technique() -> None:
    techniques = roles(["naive", *"abcdef"], "naive", [])
    assert not {look.color for look in techniques.values()} & {*PART_PALETTE, GRID}


def test_what_is_left_out_is_said_where_something_is() -> None:
    assert left_out(3, 3, "panels") == ""
    assert left_out(6, 1200, "panels") == " Shown: 6 of 1,200 panels."
