"""Sections of the page: their order, and what it takes to add a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

from analysis.page import sections
from analysis.page.report import build
from analysis.plots.figure import Figure, looks
from analysis.plots.lines import Axis, Line, lines
from analysis.records.load import load_frames
from analysis.table import Column, Table, frame
from analysis.topics.topic import Answer, Sweep, Topic
from tests.analysis.builders import config, failed, record, write_sweep
from tests.analysis.samples import good_sweep, mixed_sweep

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


def test_cautions_stand_by_their_weight(tmp_path: Path) -> None:
    found = build(load_frames(mixed_sweep(tmp_path / "s")), draw=False).cautions
    weights = [("all", "accuracy", "times", "none").index(one.touches) for one in found]
    assert weights == sorted(weights)
