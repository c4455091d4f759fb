"""docs/course.md has a row for each of the course's fifty items, and names what exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from jobs.config.load import load_sweep
from jobs.config.sweep import SWEEPS
from jobs.config.techniques import load_techniques
from jobs.config.yamlfile import names_in
from tests.measured import MEASURED, PAGE, sweeps
from train.record.run import read_record

COURSE = PAGE.with_name("course.md")
#: A value with its interval, or a difference, as docs/results.md prints both.
_MEASURED = re.compile(r"[-+]?\d\.\d{3,4} (?:± \d\.\d{3}|\([-+]?\d\.\d{3,4} to [-+]?\d\.\d{3,4}\))")


@cache
def _rows() -> list[list[str]]:
    lines = [line for line in COURSE.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_one_table_of_fifty_rows_in_the_course_s_order() -> None:
    assert [row[0] for row in _rows()] == [str(item) for item in range(1, 51)]
    assert all(len(row) == 5 and all(row) for row in _rows())


def test_each_name_in_brackets_leads_to_a_sweep_or_a_file() -> None:
    text = COURSE.read_text()
    targets = dict(re.findall(r"^\[([\w./]+)\]: (\S+)$", text, re.MULTILINE))
    named = set(re.findall(r"\[([\w./]+)\](?![(:])", text))
    assert named == set(targets)
    for name, target in targets.items():
        assert (COURSE.parent / target).is_file(), target
        if target.endswith(".yaml"):
            assert Path(target).stem == name in names_in(SWEEPS)


def test_each_item_has_a_sweep_or_a_place_or_a_reason() -> None:
    for number, _, here, result, _ in _rows():
        assert "[" in here or result.startswith(("not done: ", "refused: ")), number


def test_each_figure_with_an_interval_is_one_of_the_results() -> None:
    shown = _MEASURED.findall(" ".join(row[3] for row in _rows()))
    assert len(shown) > 20
    published = " ".join(PAGE.read_text().split())
    # tables of results have the interval of a difference, or of an accuracy, in the same words
    assert [figure for figure in shown if figure not in published] == []


def test_an_item_none_of_whose_sweeps_is_published_says_what_runs_it() -> None:
    measured = {folder.name for folder in sweeps()}
    for number, _, here, result, _ in _rows():
        used = set(re.findall(r"\[(\w+)\]", here)) & set(names_in(SWEEPS))
        if used and not used & measured:
            assert result.startswith("runs in "), number


def test_each_technique_is_in_a_sweep() -> None:
    used = {name for sweep in names_in(SWEEPS) for name in load_sweep(sweep).techniques}
    assert used == set(load_techniques())


def test_each_technique_has_a_published_result_of_three_seeds() -> None:
    """Three completed runs that differ in nothing but the seed."""
    seeds: dict[tuple[str, str], set[int]] = {}
    for file in MEASURED.glob("*/*/record.json"):
        record = read_record(file)
        condition = record.config.model_copy(update={"seed": 0}).model_dump_json()
        if record.status == "completed":
            own = seeds.setdefault((record.config.technique.name, condition), set())
            own.add(record.config.seed)
    supported = {name for (name, _), own in seeds.items() if len(own) >= 3}
    assert supported == set(load_techniques())
