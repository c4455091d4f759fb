"""What a page's script does in a browser: sorting, filtering, and what the CSV button saves."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.page.report import build
from analysis.page.write import render
from analysis.records.load import load_frames
from analysis.table import FIRST_ROWS, MOST_SORTED, Column, Table, frame
from analysis.writing import csv_text, environment
from tests.analysis.samples import good_sweep, mixed_sweep

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
COLUMNS = (
    Column("name", "string", "name"),
    Column("value", "string", "value"),
    Column("place", "Int64"),
)


def opened(page: str, folder: Path, script: str, width: int = 1280) -> Any:
    """What ``script`` returns on a page in a browser whose profile is the test's own; in it
    ``errors`` has the page's, ``saved`` pairs of name and text, and ``shown()`` the first cells of
    the rows that a reader sees."""
    probe = """<script>
    const saved = [], errors = [];
    let text = "";
    addEventListener("error", event => errors.push(event.message));
    window.Blob = function (parts) { text = parts.join(""); };
    URL.createObjectURL = () => "#";
    URL.revokeObjectURL = () => {};
    HTMLAnchorElement.prototype.click = function () { saved.push([this.download, text]); };
    const shown = () => [...document.querySelectorAll("tbody tr")].filter(row => !row.hidden)
      .map(row => row.cells[0].textContent);
    const save = () => document.querySelector("button[data-csv]").click();
    const sort = place => document.querySelectorAll("th > button")[place].click();
    const filter = words => {
      const input = document.querySelector("input[data-for]");
      input.value = words;
      input.dispatchEvent(new Event("input"));
    };
    addEventListener("load", () => { document.title = JSON.stringify((() => { SCRIPT })()); });
    </script>""".replace("SCRIPT", script)
    file = folder / "page.html"
    file.write_text(page.replace("<body>", f"<body>{probe}"))
    done = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         f"--user-data-dir={folder}", f"--window-size={width},900", "--virtual-time-budget=3000",
         file.as_uri()],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    found = re.search(r"<title>(.*?)</title>", done.stdout)
    assert found is not None, done.stdout
    return json.loads(html.unescape(found[1]))


def after(folder: Path, table: Table, script: str) -> Any:
    """On a page with the table."""
    page = """{% from "parts.html.j2" import table_of %}<!doctype html><meta charset="utf-8">
    <title></title><body>{{ table_of(table) }}<script>{% include "report.js" %}</script>"""
    return opened(environment().from_string(page).render(table=table), folder, script)


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_opens_in_a_browser_without_an_error(tmp_path: Path, width: int) -> None:
    page = render(build(load_frames(mixed_sweep(tmp_path / "s"))))
    found = opened(page, tmp_path, """
        document.querySelector("#every_run th button").click(); save();
        const sorted = document.querySelector("#every_run th").getAttribute("aria-sort");
        const wide = document.documentElement.scrollWidth > innerWidth;
        return { errors, sorted, wide, saved: saved[0][0] };
    """, width)  # fmt: skip
    expected = {"errors": [], "sorted": "descending", "wide": False}
    assert found == {**expected, "saved": "figure-efficiency.csv"}


def numbered(count: int) -> Table:
    """Names with what CSV, HTML and scripts have a meaning for; the last row has the largest."""
    names = [f'row {i} "quoted",\nbroken </b>' if i % 2 else f"row {i}" for i in range(count)]
    rows = {"name": names, "value": [str(i) for i in range(count)], "place": range(count)}
    return Table("many", "Many", COLUMNS, frame(rows, COLUMNS))


def test_sorting_and_filtering_act_on_all_rows_and_csv_saves_what_is_shown(tmp_path: Path) -> None:
    """Seen: of 300 rows the largest of the first 200 was at the top."""
    table = numbered(300)
    first, saved = after(tmp_path, table, """
        sort(1); const first = shown()[0];
        filter("row 1 quoted"); save();
        filter("nowhere"); save();
        return [first, saved];
    """)  # fmt: skip
    wanted = [i for i in range(299, -1, -1) if i % 2 and "1" in str(i)]
    assert first == table.data["name"][299]
    assert [name for name, _ in saved] == [f"many-{n}-of-300.csv" for n in (len(wanted), 0)]
    some, none = (pd.read_csv(io.StringIO(text)) for _, text in saved)
    assert some["place"].tolist() == wanted
    assert some["name"].tolist() == [table.data["name"][i] for i in wanted]
    assert not len(none) and list(none) == ["name", "value", "place"]


def test_a_part_of_a_table_is_neither_sorted_nor_filtered(tmp_path: Path) -> None:
    script = """save();
        return [document.querySelectorAll("th > button, input").length, shown().length, saved];
    """
    tools, rows, _ = after(tmp_path, numbered(MOST_SORTED), script)
    assert (tools, rows) == (3, MOST_SORTED)
    count = MOST_SORTED + 1
    tools, rows, saved = after(tmp_path, numbered(count), script)
    assert (tools, rows) == (0, FIRST_ROWS)
    assert saved[0][0] == f"many-{FIRST_ROWS}-of-{count}.csv"


def test_tips_work_by_keyboard_and_touch(tmp_path: Path) -> None:
    """Seen: a point's value was shown to a resting pointer alone."""
    page = render(build(load_frames(good_sweep(tmp_path / "s"))))
    stops, said, names = opened(page, tmp_path, """
        const parts = [...document.querySelectorAll("#figure-efficiency g.tip")];
        const box = document.querySelector(".tip-box"), said = [];
        const told = () => said.push(box.hidden ? "" : box.textContent);
        const press = key => document.activeElement.dispatchEvent(
          new KeyboardEvent("keydown", { key, bubbles: true }));
        const stops = parts.filter(part => part.getAttribute("tabindex") === "0").length;
        parts[0].focus(); told();
        press("ArrowRight"); told();
        press("ArrowLeft"); told();
        press("Escape"); told();
        parts[2].dispatchEvent(new MouseEvent("click", { bubbles: true })); told();
        document.querySelector("#scaling th > button[title]").focus(); told();
        return [stops, said, parts.map(part => part.querySelector("title").textContent)];
    """)  # fmt: skip
    assert stops == 1, "Tab leads past a plot of many points"
    assert len({*names}) == 4 and said[:5] == [names[0], names[1], names[0], "", names[2]]
    assert said[5].startswith("technique, and the settings that differ")


def test_csv_of_all_rows_is_the_file_beside_the_page(tmp_path: Path) -> None:
    rows = {"name": [*"abcdefghij"], "value": ["1"] * 10, "place": range(10)}
    table = Table("few", "Few", COLUMNS, frame(rows, COLUMNS))
    saved = after(tmp_path, table, """save(); sort(0); save(); return saved;""")
    assert saved[0] == ["few.csv", csv_text(table.data)]
    assert saved[1][0] == "few.csv"
    assert pd.read_csv(io.StringIO(saved[1][1]))["name"].tolist() == [*"jihgfedcba"]


def test_numbers_also_in_texts_are_sorted_by_what_they_are(tmp_path: Path) -> None:
    values = ["∞", "1e+06", "4,096", "512 → 1,024", "10", "5", "0.1", "1.2e-05", "5e-07", "< 1e-9",
              "−0.5", "-3 (-4 to -2)", "-2e3"]  # fmt: skip
    texts = ["t (base_lr=0.1)", "t (base_lr=0.05)", "t (base_lr=5e-05)", "node10", "node2",
             "batch 1,024", "batch 16"]  # fmt: skip
    for own in (values, texts):
        rows = {"name": own[::-1], "value": own[::-1], "place": range(len(own))}
        table = Table("numbers", "Numbers", COLUMNS, frame(rows, COLUMNS))
        assert after(tmp_path, table, "sort(1); return shown();") == own
