"""Sections of the page: their order, what it takes to add a topic, and that an error in one part is
a sentence in its place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis.__main__ import app
from analysis.page import sections
from analysis.page.report import build
from analysis.page.sections import parts
from analysis.plots.figure import Figure, looks
from analysis.plots.lines import Axis, Line, lines
from analysis.records.load import load_frames
from analysis.table import Column, Table, frame
from analysis.topics import axes
from analysis.topics.cells import machine
from analysis.topics.comparisons import techniques
from analysis.topics.convergence import reached
from analysis.topics.scaling import series, step_figure
from analysis.topics.topic import Answer, Sweep, Topic
from tests.analysis.builders import config, failed, record, write_sweep
from tests.analysis.samples import good_sweep
from tests.analysis.topics.convergence.test_noise import measured, run, too_short

COLUMNS = (Column("gpus", "Int64", "ranks"), Column("slowest_s", heading="slowest run", unit="s"))


def _slowest(of: Sweep) -> Table:
    found = of.runs.groupby("gpus")["train_s"].max().rename("slowest_s").reset_index()
    return Table("slowest", "Slowest runs", COLUMNS, frame(found.to_dict("list"), COLUMNS))


def _figure(of: Sweep) -> Figure:
    data = of.made(_slowest).data
    line = Line(data["gpus"], data["slowest_s"], looks(["slowest"])["slowest"], "slowest")
    svg = lines({"": [line]}, Axis("ranks", "octaves"), Axis("seconds", low=0))
    return Figure("slowest_by_ranks", "The slowest run by ranks", "One point each.", data, svg)


def _answer(of: Sweep) -> Iterable[Answer]:
    worst = max(of.rows(_slowest), key=lambda row: row["slowest_s"])
    text = f"{worst['slowest_s']:.0f} s on {worst['gpus']} ranks."
    yield Answer("slowest", "How long does the slowest run take?", text, "slowest")


#: What a file of its own would hold.
MADE_UP = Topic(tables=(_slowest,), plots=(_figure,), answers=(_answer,))


def test_a_topic_is_one_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("analysis.topics.made_up")
    module.TOPIC = MADE_UP  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    line = sections.Place("made_up", "Made up", ("made_up",))
    monkeypatch.setattr(sections, "PAGE", (*sections.PAGE, line))
    found = build(load_frames(good_sweep(tmp_path / "s")))
    assert found.exit_code == 0 and found.topics[-1].title == "Made up"
    assert len(found.tables["slowest"].data) == 2
    assert [figure.key for figure in found.topics[-1].figures] == ["slowest_by_ranks"]
    (answer,) = (one.text for one in found.answers if one.key == "slowest")
    assert answer.endswith("s on 2 ranks.") or answer.endswith("s on 1 ranks.")


def test_each_topic_is_on_the_page() -> None:
    """A file with a TOPIC that no section names would be shown nowhere."""
    room = Path(sections.__file__).parents[1] / "topics"
    own = {".".join(file.relative_to(room).with_suffix("").parts)
           for file in room.rglob("*.py") if "\nTOPIC = " in file.read_text()}  # fmt: skip
    assert own == {name for place in sections.PAGE for name in place.topics}


def test_what_the_sweep_varies_comes_first(tmp_path: Path) -> None:
    def keys(name: str, *items: object) -> list[str]:
        folder = write_sweep(tmp_path / name, items)  # type: ignore[arg-type]
        return [section.key for section in build(load_frames(folder), draw=False).topics]

    one = record(config())
    assert keys("ranks", one, record(config(gpus=2)))[0] == "scaling"
    assert keys("techniques", one, record(config("lamb")))[0] == "techniques"
    assert keys("batch", one, record(config(batch_per_rank=32)))[0] == "convergence"
    assert keys("failed", one, failed(config(gpus=2)))[0] == "completeness"
    assert keys("nothing", failed(config()))[0] == "completeness"


def broken(*_: Any, **__: Any) -> Any:
    raise ValueError("Axis limits cannot\nbe NaN")


#: Where a part is made, and the title of the topic that says why it is not there.
BROKEN = [
    (series, "_beside_settings", "Scaling"),
    (machine, "table", "Cells and machines"),
    (step_figure, "numbers", "Scaling"),
    (axes, "one_at_a_time", "What each setting does"),
    (techniques, "sentences", "Which technique"),
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
    assert "Axis limits cannot be NaN" in (folder / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file", "/home/me/secret"), "FileNotFoundError: No such fil"),
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
        assert len(found.tables["noise_scale"].data) == len(
            {i.config.technique.name for i in items}
        )
