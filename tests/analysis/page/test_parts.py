"""No part of a report takes the page with it: an error is a sentence in its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis.__main__ import app
from analysis.page.report import build
from analysis.page.sections import parts
from analysis.records.load import load_frames
from analysis.topics import axes
from analysis.topics.cells import machine
from analysis.topics.comparisons import techniques
from analysis.topics.convergence import reached
from analysis.topics.scaling import series, step_figure
from analysis.topics.topic import Sweep
from tests.analysis.builders import write_sweep
from tests.analysis.samples import good_sweep
from tests.analysis.topics.convergence.test_noise import measured, run, too_short


def broken(*_: Any, **__: Any) -> Any:
    raise ValueError("Axis limits cannot\nbe NaN")


#: Where a part is made, and the title of the topic that says why it is not there.
BROKEN = [
    (series, "with_series", "Scaling"),
    (machine, "table", "Cells and machines"),
    (step_figure, "numbers", "Scaling"),
    (axes, "comparable", "What each setting does"),
    (techniques, "_said", "Which technique"),
    (machine, "mixtures", "Cells and machines"),
]


@pytest.mark.parametrize(("room", "name", "title"), BROKEN, ids=lambda value: str(value)[-20:])
def test_a_part_that_fails_is_a_sentence_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: Any, name: str, title: str
) -> None:
    folder = good_sweep(tmp_path / "s")
    whole = build(load_frames(folder))
    monkeypatch.setattr(room, name, broken)
    found = build(load_frames(folder))
    failed = [topic for topic in found.topics if topic.failures]
    assert [topic.title for topic in failed] == [title]
    assert "could not be made: ValueError: Axis limits cannot be NaN (" in failed[0].failures[0]
    assert {topic.key for topic in whole.topics} <= {topic.key for topic in found.topics}
    assert found.answers
    assert (found.exit_code, whole.exit_code) == (3, 0)
    assert any(title in caution.text for caution in found.cautions if caution.is_alarm)


def test_the_page_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = good_sweep(tmp_path / "s")
    monkeypatch.setattr(reached, "columns", broken)
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 3 and "Accuracy: A table could not be made" in done.output
    for name in ("report.html", "report.md"):
        assert "Axis limits cannot be NaN" in (folder / "report" / name).read_text()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file", "/home/me/secret"), "FileNotFoundError: No such fil"),
        (KeyError("gone"), "KeyError: 'gone'"),
        (AssertionError(), "AssertionError (analysis/"),
    ],
)
def test_a_sentence_has_the_kind_and_the_place_and_no_path(
    tmp_path: Path, error: Exception, said: str
) -> None:
    def fail(of: Sweep) -> None:
        raise error

    failures: list[str] = []
    makers: list[Callable[[Sweep], Any]] = [fail, lambda of: 1, fail]
    assert parts(makers, Sweep(load_frames(good_sweep(tmp_path / "s"))), "A plot", failures) == (1,)
    (sentence,) = failures
    assert sentence.startswith(f"A plot could not be made: {said}")
    assert "(analysis/page/sections.py:" in sentence and "secret" not in sentence


def test_a_sweep_of_two_steps_an_epoch_has_a_report(tmp_path: Path) -> None:
    """Epochs without a noise scale beside a technique that has them, and alone."""
    short = [run(seed, *[too_short()] * 3) for seed in (0, 1)]
    of_noise = measured(100.0, 80.0, 125.0)
    known = [run(seed, of_noise, of_noise, name="lamb") for seed in (0, 1)]
    for name, items in (("a", short), ("b", [*short, *known])):
        found = build(load_frames(write_sweep(tmp_path / name, items)))
        assert not [sentence for topic in found.topics for sentence in topic.failures]
        keys = {figure.key for topic in found.topics for figure in topic.figures}
        assert ("noise_curve" in keys) == (name == "b")
