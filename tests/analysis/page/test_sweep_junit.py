"""A sweep for test collectors: one case per planned cell."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

from analysis.page.junit import junit
from analysis.records.load import load_frames
from tests.analysis.builders import config, failed, record, write_sweep
from tests.analysis.samples import HOSTILE, mixed_sweep


def suite_of(folder: Path) -> Xml.Element:
    root = Xml.fromstring(junit(load_frames(folder)))
    (suite,) = root
    return suite


def test_every_planned_cell_has_its_case(tmp_path: Path) -> None:
    suite = suite_of(mixed_sweep(tmp_path / "mixed"))
    frames = load_frames(tmp_path / "mixed")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == frames.planned["cell_id"].tolist()
    assert {case.get("classname") for case in cases} == {"mixed"}
    found = [[child.tag for child in case] for case in cases]
    assert found == [[]] * 9 + [["failure"]] * 3 + [["skipped"]], "diverged is a result"
    kinds = [child.get("type") for case in cases for child in case]
    assert kinds == ["failed", "rejected", "unreadable", None]
    reasons = [child.get("message") for case in cases for child in case]
    assert reasons[1:] == [problem.reason for problem in frames.problems][1:]
    assert reasons[0] == f"{HOSTILE}; its log ends: a <b>bold</b> end"
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "13", "failures": "3", "errors": "0", "skipped": "1"}


def test_the_time_of_a_case_is_end_to_end(tmp_path: Path) -> None:
    items = [record(wall_s=12.5), record(config(seed=1), wall_s=17.0)]
    suite = suite_of(write_sweep(tmp_path / "s", items))
    assert [case.get("time") for case in suite.findall("testcase")] == ["12.500", "17.000"]
    assert suite.get("time") == "29.500" and suite.get("timestamp") == "2025-03-01T12:00:00"


def test_hostile_text_is_valid_xml(tmp_path: Path) -> None:
    bad = ']]> <failure> & "quoted" \x00\x1b[31m \ufffe \u2028 end'
    item = failed(config(), what=bad, where=bad, what_to_do=bad, log_tail=(bad,))
    folder = write_sweep(tmp_path / "s", [item], also_planned=["a-cell"])
    suite = suite_of(folder)
    first, second = suite.findall("testcase")
    (told,) = first
    assert told.text is not None and told.text.count(']]> <failure> & "quoted"') == 4
    assert "\x1b" not in told.text and "?[31m" in told.text
    assert second.get("name") == "a-cell" and [child.tag for child in second] == ["skipped"]


def test_an_empty_plan_is_a_suite_without_a_case(tmp_path: Path) -> None:
    suite = suite_of(write_sweep(tmp_path / "s", []))
    assert suite.get("tests") == "0"
