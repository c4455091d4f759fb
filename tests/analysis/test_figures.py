"""Drawings are deterministic, can stand on any page, leave no trace behind, and say what they leave
out."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from analysis.plots.figure import (
    GREY,
    GRID,
    INK,
    MOST_COLOURS,
    PALETTE,
    PAPER,
    PART_PALETTE,
    Figure,
    inline,
    looks,
    roles,
)
from analysis.topics.convergence import critical_batch, curves, reached
from analysis.topics.scaling import how_far, step_figure
from analysis.topics.topic import MOST_DRAWN, Sweep, Topic
from tests.analysis import planned
from tests.analysis.builders import config, epochs_frame, record
from tests.analysis.topics.convergence.to_target import run as to_target
from train.record.run import RunRecord

ITEMS = [
    record(config(gpus=gpus, seed=seed), images_per_s=100.0 * gpus + seed)
    for gpus in (1, 2)
    for seed in (0, 1)
]
SEEN = looks(["naive"])


def drawn() -> list[Figure]:
    epochs = epochs_frame(ITEMS)
    found = reached.conditions(planned.sweep(ITEMS))
    return [curves.figure(epochs, SEEN), reached.by_batch(found.data, SEEN)]


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


NAMES = ["naive", *(f"t{i:02}" for i in range(14))]


def shared(items: list[RunRecord]) -> Sweep:
    return planned.sweep(items, techniques=NAMES)


def plot(topic: Topic, of: Sweep, number: int = 0) -> Figure:
    found = topic.plots[number](of)
    assert found is not None
    return found


def ranked(batch: int = 16, gpus: int = 1) -> list[RunRecord]:
    """The reference is the worst; the later ones are better."""
    return [
        record(config(name, batch_per_rank=batch, gpus=gpus), images_per_s=100.0 * gpus + place,
               accuracies=[0.1, 0.2, 0.3 + place / 50])
        for place, name in enumerate(NAMES)
    ]  # fmt: skip


def test_the_reference_is_drawn_however_low_it_is() -> None:
    seen = shared(ranked()).seen
    assert [*seen] == ["naive", *NAMES[-(MOST_DRAWN - 1) :]]
    coloured = [name for name, look in seen.items() if look.alpha == 1]
    assert coloured == ["naive", *NAMES[-MOST_COLOURS:]], "the best"


def test_a_reference_without_a_run_at_the_largest_batch_is_drawn() -> None:
    items = [*ranked(), *(item for item in ranked(64) if item.config.technique.name != "naive")]
    assert next(iter(shared(items).seen)) == "naive"


@pytest.mark.parametrize(
    ("topic", "number", "items"),
    [
        (reached.TOPIC, 0, lambda: [*ranked(), *ranked(32)]),
        (reached.TOPIC, 1, lambda: [*ranked(), *ranked(32)]),
        (step_figure.TOPIC, 0, lambda: [*ranked(), *ranked(32)]),
        (how_far.TOPIC, 0, lambda: [*ranked(), *ranked(gpus=2)]),
        (critical_batch.TOPIC, 0,
         lambda: [to_target(batch, name=name) for name in NAMES for batch in (16, 32, 64)]),
    ],
    ids=["by batch", "curves", "steps", "efficiency", "critical batch"],
)  # fmt: skip
def test_each_figure_says_how_many_it_draws(
    topic: Topic, number: int, items: Callable[[], list[RunRecord]]
) -> None:
    found = plot(topic, shared(items()), number)
    assert "Shown: 12 of 15 techniques, the reference and those with the highest" in found.caption
    assert sum(f">{name}<" in str(found.svg) for name in NAMES) <= MOST_DRAWN
