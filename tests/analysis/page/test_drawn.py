"""Of more techniques than a figure can tell apart: which are drawn, and that a figure says so."""

from __future__ import annotations

import pytest

from analysis.plots.figure import Figure
from analysis.topics.convergence import critical_batch, noise, reached
from analysis.topics.scaling import how_far, step_figure
from analysis.topics.topic import MOST_DRAWN, Sweep, Topic
from tests.analysis import planned
from tests.analysis.builders import config, record
from tests.analysis.topics.convergence.test_noise import measured
from tests.analysis.topics.convergence.test_noise import run as with_noise
from tests.analysis.topics.convergence.to_target import run as to_target
from train.record.run import RunRecord

NAMES = ["naive", *(f"t{i:02}" for i in range(14))]
SHOWN = "Shown: 12 of 15 techniques, the reference and those with the highest accuracy"


def shared(items: list[RunRecord]) -> Sweep:
    return planned.sweep(items, techniques=NAMES)


def plot(topic: Topic, of: Sweep, number: int = 0) -> Figure:
    found = topic.plots[number](of)
    assert found is not None
    return found


def sweep(batch: int = 16, gpus: int = 1) -> list[RunRecord]:
    """The reference is the worst; the later ones are better."""
    return [
        record(config(name, batch_per_rank=batch, gpus=gpus), images_per_s=100.0 * gpus + place,
               accuracies=[0.1, 0.2, 0.3 + place / 50])
        for place, name in enumerate(NAMES)
    ]  # fmt: skip


def test_the_reference_is_drawn_however_low_it_is() -> None:
    seen = [*shared(sweep()).seen]
    assert seen == ["naive", *NAMES[-(MOST_DRAWN - 1) :]]


def test_a_reference_without_a_run_at_the_largest_batch_is_drawn() -> None:
    items = [*sweep(), *(item for item in sweep(64) if item.config.technique.name != "naive")]
    assert next(iter(shared(items).seen)) == "naive"


@pytest.mark.parametrize("kind", ["by batch", "curves", "efficiency", "steps"])
def test_each_figure_says_how_many_it_draws(kind: str) -> None:
    items = [*sweep(), *(sweep(gpus=2) if kind == "efficiency" else sweep(32))]
    of = shared(items)
    topics = {"steps": step_figure.TOPIC, "efficiency": how_far.TOPIC}
    found = plot(topics.get(kind, reached.TOPIC), of, kind == "curves")
    assert SHOWN in found.caption
    assert kind != "steps" or found.data["name"].str.startswith("naive").any()
    assert ">t00<" not in str(found.svg)


def test_steps_and_noise_say_it_too() -> None:
    items = [to_target(batch, name=name) for name in NAMES for batch in (16, 32, 64)]
    of = shared(items)
    assert "Shown: 12 of 15 techniques" in plot(critical_batch.TOPIC, of).caption
    one = measured(100.0, 80.0, 125.0)
    of = shared([with_noise(0, one, one, name=name) for name in NAMES])
    assert "Shown: 12 of 15 techniques" in plot(noise.TOPIC, of).caption


def test_where_all_are_drawn_nothing_is_said() -> None:
    of = shared([*sweep()[:MOST_DRAWN], *sweep(32)[:MOST_DRAWN]])
    assert "Shown" not in plot(reached.TOPIC, of).caption
