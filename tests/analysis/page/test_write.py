"""The files of a report: golden text, a page that loads nothing, CSVs that can be read back."""

from __future__ import annotations

import dataclasses
import html
import io
import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from analysis.page.report import Report, build
from analysis.page.write import ANSWERS_VERSION, render, write_report
from analysis.records.load import load_frames
from analysis.table import Names
from analysis.writing import csv_text, environment
from tests.analysis.builders import config, failed, record, write_sweep
from tests.analysis.samples import good_records, good_sweep, mixed_sweep, rich_sweep

GOLDEN = Path(__file__).parent / "golden" / "report.txt"
ADDRESSES = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}


class Page(HTMLParser):
    """Collects what a browser would load, show and link."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def nothing_usable(folder: Path) -> Path:
    return write_sweep(folder, [failed(config())], also_planned=["b"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixed_sweep(tmp_path_factory.mktemp("results") / "mixed")


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return build(load_frames(folder))


@pytest.fixture(scope="module")
def written(report: Report, folder: Path) -> Path:
    for path in write_report(report, folder):
        assert path.is_file()
    return folder / "report"


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return Page((written / "report.html").read_text())


def text_of(html_text: str) -> str:
    """What a reader sees: no script, style or drawing."""
    shown = re.sub(r"(?s)<(script|style|svg)\b.*?</\1>", "", html_text)
    shown = re.sub(r"</t[dh]>\s*<t", " | <t", shown).replace("</dt><dd>", ": ")
    shown = re.sub(r"<[^>]*>", "", shown)
    lines = (line.strip() for line in html.unescape(shown).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def test_golden_text(report: Report) -> None:
    text = text_of(render(report))
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "wanted? then make golden, and read the difference"


def test_the_page_loads_nothing(page: Page, written: Path) -> None:
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base"}, tag
        for name in ADDRESSES & set(attributes):
            address = attributes[name] or ""
            assert not re.match(r"(?i)[a-z]+:|//", address), f"<{tag} {name}={address}>"
        assert tag != "script" or "src" not in attributes
        assert not {name for name in attributes if name.startswith("on")}, f"handler in <{tag}>"
    text = (written / "report.html").read_text()
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text), "only marks inside of the page"


@pytest.mark.parametrize("make", [mixed_sweep, rich_sweep, good_sweep, nothing_usable])
def test_links_of_the_page_lead_to_a_place_on_it(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    report = build(load_frames(make(tmp_path / "s")), draw=False)
    found = Page(render(report))
    ids = {attributes["id"] for _, attributes in found.tags if "id" in attributes}
    links = [attributes["href"] or "" for tag, attributes in found.tags if tag == "a"]
    assert len(links) >= 2
    assert {link for link in links if link.removeprefix("#") not in ids} == set()


def test_ids_of_the_page_are_unique_and_every_button_for_a_csv_has_its_numbers(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    buttons = [attributes for _, attributes in page.tags if "data-csv" in attributes]
    assert len({button["aria-label"] for button in buttons}) == len(buttons) >= 10
    assert {f"{button['data-csv']}-csv" for button in buttons} <= set(ids)


def test_tables_and_figures_scroll_in_their_own_box(page: Page, report: Report) -> None:
    inside = 0
    for (before, attributes), (tag, _) in zip(page.tags, page.tags[1:], strict=False):
        if tag in {"table", "svg"}:
            assert (before, attributes["class"]) == ("div", "scroll")
            inside += 1
    drawn = [figure for topic in report.topics for figure in topic.figures if figure.svg]
    full = [table for table in report.tables.values() if len(table.data)]
    assert inside == len(drawn) + len(full) > 10


def test_a_hostile_title_and_names(tmp_path: Path) -> None:
    bad = "</script><img src=x onerror=alert(1)><!--<script>"
    items = [
        record(world_changes={"device": bad}, provenance_changes={"git_commit": bad},
               alarms=(bad,)),
        failed(config(seed=1), what=bad, where=bad, what_to_do=bad, log_tail=(bad,)),
    ]  # fmt: skip
    report = build(load_frames(write_sweep(tmp_path / "s", items, title=bad)))
    text = render(report)
    assert bad not in text and "<!--<script>" not in text
    found = Page(text)
    assert not [tag for tag, _ in found.tags if tag == "img"]
    scripts = [attributes.get("type") for tag, attributes in found.tags if tag == "script"]
    assert scripts.pop() is None and set(scripts) == {"text/csv"}, "none of its own"
    assert "".join(found.texts).count(bad) >= 3, "it is there as text"


def test_a_hostile_name_in_a_figure(report: Report) -> None:
    bad = "</text><script>alert(1)</script>"
    data = report.topics[1].figures[0]
    hostile = dataclasses.replace(data, title=bad + '"')
    shown = environment().from_string("{{ figure | inline_svg }}").render(figure=hostile)
    assert "<script>" not in shown and "&#34;" in shown.split(">")[0]


def as_written(table: pd.DataFrame) -> pd.DataFrame:
    """Lists are JSON there; an empty text and a null are the same empty field."""
    texts = table.select_dtypes(["string", "object"])
    texts = texts.map(lambda one: json.dumps(one) if isinstance(one, tuple) else one)
    texts = texts.astype("string")
    return table.assign(**{str(name): texts[name].replace("", pd.NA) for name in texts})


def test_a_list_in_a_csv_can_be_read_back_and_an_empty_one_is_no_null() -> None:
    lists = [Names(("a, b", "c")), Names(), None, Names(("a, b", "c"))]
    text = csv_text(pd.DataFrame({"hosts": pd.Series(lists, dtype=object), "n": range(4)}))
    found = pd.read_csv(io.StringIO(text))["hosts"]
    assert found.isna().tolist() == [False, False, True, False]
    assert [json.loads(one) for one in found.dropna()] == [["a, b", "c"], [], ["a, b", "c"]]


def test_tables_and_numbers_of_figures_return_from_their_csv(
    report: Report, written: Path
) -> None:  # fmt: skip
    names = ("convergence", "scaling", "claims", "every_run", "cells_not_used", "larger_batch")
    files = {f"{name}.csv": report.tables[name].data for name in names}
    files |= {f"figures/{figure.key}.csv": figure.data for figure in report.figures}
    assert len(files) == 6 + 4
    for name, data in files.items():
        expected = as_written(data)
        again = pd.read_csv(
            written / name,
            dtype=expected.dtypes.to_dict(),
            float_precision="round_trip",
            keep_default_na=False,
            na_values=[""],
        )
        pd.testing.assert_frame_equal(again, expected, check_exact=True)
        assert len(again) > 0


def test_answers_for_programs_are_those_of_the_page(report: Report, written: Path) -> None:
    told = json.loads((written / "answers.json").read_text())
    assert told["schema_version"] == ANSWERS_VERSION
    assert told["sweep"] == "mixed" and told["exit_code"] == 1
    expected = report.answers
    assert told["answers"] == [answer.as_json() for answer in expected]
    for answer in told["answers"]:
        assert set(answer) == {"key", "question", "text", "evidence"}
    assert [caution["touches"] for caution in told["cautions"]] == ["all"]


def test_no_file_is_half_written(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full while a file is put in its place: the old page stays, whole."""
    write_report(report, tmp_path)
    before = (tmp_path / "report" / "report.html").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    changed = dataclasses.replace(report, title="another")
    with pytest.raises(OSError, match="No space"):
        write_report(changed, tmp_path)
    assert (tmp_path / "report" / "report.html").read_bytes() == before


def test_tables_and_figures_of_an_earlier_report_go_and_other_files_stay(tmp_path: Path) -> None:
    folder = good_sweep(tmp_path / "s")
    out = folder / "report"
    write_report(build(load_frames(folder)), folder)
    earlier = [out / "scaling.csv", out / "figures" / "validation_accuracy.svg"]
    assert all(file.is_file() for file in earlier)
    foreign = [out / "mine.csv", out / "figures" / "paper.pdf", out / "figures" / "mine.csv"]
    for file in foreign:
        file.write_text("mine")
    for item in good_records():
        (folder / item.cell_id / "record.json").unlink()
    write_report(build(load_frames(folder)), folder)
    assert [file.read_text() for file in foreign] == ["mine"] * 3
    assert not any(file.exists() for file in earlier)


@pytest.mark.parametrize(
    "names", ['["../sweep.json", "figures/../../sweep.json"]', "{", "[1]", "null"]
)
def test_a_note_of_files_leads_nowhere_else(tmp_path: Path, names: str) -> None:
    folder = good_sweep(tmp_path / "s")
    (folder / "report").mkdir()
    (folder / "report" / ".files.json").write_text(names)
    write_report(build(load_frames(folder), draw=False), folder)
    assert (folder / "sweep.json").is_file()
