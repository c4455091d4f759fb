"""The files of a report: golden text, a page that loads nothing, CSVs that can be read back."""

from __future__ import annotations

import io
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from analysis.frames import RUN_COLUMNS
from analysis.load import load_sweep
from analysis.report import Report, build_report
from analysis.write import csv_text, markdown, render, write_report
from tests.analysis.builders import config, failed, record, write_sweep
from tests.analysis.samples import good_records, good_sweep, mixed_sweep

GOLDEN = Path(__file__).parent / "golden" / "report.md"
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixed_sweep(tmp_path_factory.mktemp("results") / "mixed")


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return build_report(load_sweep(folder))


@pytest.fixture(scope="module")
def written(report: Report, folder: Path) -> Path:
    for path in write_report(report, folder):
        assert path.is_file()
    return folder / "report"


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return Page((written / "report.html").read_text())


def test_golden_text(report: Report) -> None:
    text = render(report, "report.md.j2")
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "wanted? then UPDATE_GOLDEN=1 and read the difference"


def test_the_page_loads_nothing(page: Page, written: Path) -> None:
    for tag, attributes in page.tags:
        assert tag not in {"script", "link", "iframe", "img", "object", "embed", "base"}, tag
        for name in ADDRESSES & set(attributes):
            address = attributes[name] or ""
            assert not re.match(r"(?i)[a-z]+:|//", address), f"<{tag} {name}={address}>"
        assert not {name for name in attributes if name.startswith("on")}, f"handler in <{tag}>"
    text = (written / "report.html").read_text()
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text), "only marks inside of the page"


def test_links_of_the_page_lead_to_files(page: Page, written: Path) -> None:
    links = [a["href"] for tag, a in page.tags if tag == "a"]
    assert len(links) >= 10
    for link in links:
        assert (written / link).is_file(), link


def test_links_of_the_text_lead_to_files(written: Path) -> None:
    links = re.findall(r"(?<!\\)\]\(([^)]+)\)", (written / "report.md").read_text())
    assert len(links) >= 10
    for link in links:
        assert (written / link).is_file(), link


def test_ids_of_the_page_are_unique(page: Page) -> None:
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))


def test_tables_and_figures_scroll_in_their_own_box(page: Page) -> None:
    inside = 0
    for (before, attributes), (tag, _) in zip(page.tags, page.tags[1:], strict=False):
        if tag in {"table", "svg"}:
            assert (before, attributes["class"]) == ("div", "scroll")
            inside += 1
    assert inside == 7 + 4


def test_what_a_record_says_is_text_on_the_page(page: Page) -> None:
    shown = "".join(page.texts)
    assert "<script>alert('x')</script>" in shown
    assert "a <b>bold</b> end" in shown


def test_a_hostile_title_and_names(tmp_path: Path) -> None:
    bad = "<img src=x onerror=alert(1)>"
    items = [
        record(world_changes={"device": bad}, provenance_changes={"git_commit": bad}),
        failed(config(seed=1), what=bad, where=bad, what_to_do=bad),
    ]
    report = build_report(load_sweep(write_sweep(tmp_path / "s", items, title=bad)))
    assert bad not in render(report, "report.md.j2")
    assert not [tag for tag, _ in Page(render(report, "report.html.j2")).tags if tag == "img"]


def test_markdown_has_no_signs_left() -> None:
    hostile = "a|b `c` *d* [e](http://f) <g>\nnext &amp; \\"
    assert markdown(hostile) == (
        "a\\|b \\`c\\` \\*d\\* \\[e\\](http://f) &lt;g&gt; next &amp;amp; \\\\"
    )


@pytest.mark.parametrize(
    "name", ["runs", "epochs", "convergence", "scaling", "claims", "applied", "cells_not_used"]
)
def test_tables_return_from_their_csv(report: Report, written: Path, name: str) -> None:
    table = report.frames[name]
    again = pd.read_csv(
        written / f"{name}.csv",
        dtype=table.dtypes.to_dict(),
        float_precision="round_trip",
        keep_default_na=False,
        na_values=[""],
    )
    # an empty text and a null are the same empty field
    texts = table.select_dtypes("string").columns
    expected = table.assign(**{column: table[column].replace("", pd.NA) for column in texts})
    pd.testing.assert_frame_equal(again, expected, check_exact=True)
    assert len(again) > 0


def test_numbers_of_the_figures_return(report: Report, written: Path) -> None:
    for figure in report.figures:
        again = pd.read_csv(
            written / "figures" / f"{figure.key}.csv",
            dtype=figure.data.dtypes.to_dict(),
            float_precision="round_trip",
        )
        pd.testing.assert_frame_equal(again, figure.data, check_exact=True)


def test_a_table_without_rows_keeps_its_heading() -> None:
    text = csv_text(pd.DataFrame(columns=list(RUN_COLUMNS)))
    assert pd.read_csv(io.StringIO(text)).columns.tolist() == list(RUN_COLUMNS)


def test_a_report_without_a_record_is_written_and_says_why(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [failed(config(), what="no node came up")])
    report = build_report(load_sweep(folder))
    write_report(report, folder)
    text = (folder / "report" / "report.md").read_text()
    assert "nothing can be compared" in text
    assert "no node came up" in text
    assert "no node came up" in (folder / "report" / "report.html").read_text()


def test_a_figure_of_an_earlier_report_does_not_stay(tmp_path: Path) -> None:
    folder = good_sweep(tmp_path / "s")
    write_report(build_report(load_sweep(folder)), folder)
    drawing = folder / "report" / "figures" / "validation_accuracy.svg"
    assert drawing.is_file()
    for item in good_records():
        (folder / item.cell_id / "record.json").unlink()
    write_report(build_report(load_sweep(folder)), folder)
    assert not drawing.exists()
    assert "figures/validation_accuracy.svg" not in (folder / "report/report.md").read_text()
