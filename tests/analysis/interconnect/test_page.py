"""What a run leaves on disk: the page, the CSV and JUnit."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as Xml

import pandas as pd
import pytest

from analysis.interconnect.junit import junit
from analysis.interconnect.page import figures_of, render, write_run
from analysis.interconnect.pairs import pairs_frame
from analysis.interconnect.run import Run
from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import (
    collectives,
    end,
    measurement,
    node_facts,
    retest,
    run,
    series,
    tournament,
)
from train.interconnect.collectives.record import WAYS
from train.interconnect.record import Calibrated, Node, Noise

SLOW = {("c", "*"): 0.5, ("*", "c"): 0.5}
CONFIRMED = (retest("node", ("c",), 0.5, "confirmed"),)


def cases(found: Run) -> dict[str, list[str]]:
    """suite/case -> tags inside it."""
    root = Xml.fromstring(junit(found, judge(found)))
    return {
        f"{suite.get('name')}/{case.get('name')}": [child.tag for child in case]
        for suite in root for case in suite.iter("testcase")
    }  # fmt: skip


def test_junit_has_a_case_for_every_node_and_link_and_the_run() -> None:
    found = cases(run(tournament()))
    assert len(found) == 4 + 12 + 1 and not any(found.values())


ATTRIBUTES = {
    "testsuite": {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors",
                  "skipped", "time"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"}, "error": {"message", "type"}, "skipped": set(),
}  # fmt: skip


def test_junit_has_the_form_of_ant() -> None:
    """The rules of the strictest published schema, Apache Ant's JUnit.xsd by Windy Road, in short;
    outputs of real runs were validated with the schema itself."""
    found = Run(Path("r1"), None, tournament(slow=SLOW, retests=CONFIRMED),
                collectives(series(), series(points=(), error="a <b> & \x1b[0m c")))  # fmt: skip
    for one in (found, run(tournament(slow=SLOW)), run(None)):
        root = Xml.fromstring(junit(one, judge(one)))
        assert root.tag == "testsuites" and not root.attrib
        assert [suite.get("id") for suite in root] == [str(n) for n in range(len(root))]
        for suite in root:
            tags = [child.tag for child in suite]
            assert tags[0] == "properties" and tags[-2:] == ["system-out", "system-err"]
            assert set(tags[1:-2]) <= {"testcase"}
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
        for element in root.iter():
            if element.tag in ATTRIBUTES:
                assert set(element.attrib) == ATTRIBUTES[element.tag]
            for name in {"time", "tests", "failures"} & set(element.attrib):
                assert re.fullmatch(r"\d+(\.\d+)?", element.attrib[name])
            assert element.tag != "testcase" or len(element) <= 1


def test_junit_counts_what_it_shows() -> None:
    faulty = run(tournament(slow=SLOW | {("a", "b"): 0.25}, retests=(
        *CONFIRMED, retest("link", ("a", "b"), 0.25, "cpu"),
    )))  # fmt: skip
    found = cases(faulty)
    assert found["nodes/c"] == ["failure"] and found["links/a to b"] == ["error"]
    for suite in Xml.fromstring(junit(faulty, judge(faulty))):
        inside = [child.tag for case in suite.iter("testcase") for child in case]
        for counter, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(counter)) == inside.count(tag)
        assert int(suite.get("tests")) == len(suite.findall("testcase"))


def test_junit_of_a_run_that_cannot_tell() -> None:
    noisy = tournament(noise=Noise(pair=("b", "c"), cv=0.2, together=None), decision={
        "suspects": (), "undecided": "half of them", "middle": 1e8, "visible": 0.9,
    })  # fmt: skip
    found = cases(run(noisy))
    assert found["run/verdict"] == ["error"] and found["links/b to c"] == []
    assert cases(run(None)) == {"run/verdict": ["error"]}


def test_links_that_were_not_measured_are_skipped() -> None:
    whole = tournament()
    some = tuple(m for m in whole.measurements if m.sender != "a")
    found = cases(run(whole.model_copy(update={"measurements": some})))
    assert found["links/a to b"] == ["skipped"] and found["links/b to a"] == []


def test_junit_of_many_nodes_lists_the_links_that_were_to_be_measured() -> None:
    names = [f"n{number}" for number in range(130)]
    told = tuple(measurement(a, b) for a, b in pairwise(names))
    nodes = tuple(Node(name=n, interface="eth0", address="10.0.0.1") for n in names)
    whole = tournament().model_copy(update={"measurements": told, "nodes": nodes})
    links = [name for name in cases(run(whole)) if name.startswith("links/")]
    assert len(links) == 129 and "links/n0 to n1" in links


def test_pairs_keep_the_numbers_and_the_reasons() -> None:
    broken = {"rates": (), "error": "no route, to host", "at_sender": None, "at_receiver": None}
    busy = {"at_sender": end(busy=0.5, carried=1.25)}
    frame = pairs_frame(tournament(changes={("a", "b"): broken, ("a", "c"): busy}))
    again = pd.read_csv(io.StringIO(frame.to_csv(index=False))).set_index(["sender", "receiver"])
    assert len(again) == 12
    assert again.loc["a", "b"]["error"] == "no route, to host"
    assert pd.isna(again.loc["a", "b"]["rate"]) and again.loc["a", "b"]["samples"] == 0
    assert again.loc["a", "c"]["sender_busy"] == 0.5
    assert again.loc["a", "c"]["sent_carried"] == 1.25
    assert again.loc["c", "d"]["rate"] == 2e8


def test_the_page_names_the_culprit_and_what_to_type(tmp_path: Path) -> None:
    found = Run(tmp_path, None, tournament(slow=SLOW, retests=CONFIRMED))
    page = write_run(found, judge(found))
    text = page.read_text()
    assert '<span class="status FAIL">FAIL</span>' in text
    assert "0.50 of its peers, with 3 of 3 partners; alone with a, b 0.50" in text
    assert "scontrol update NodeName=c State=DRAIN" in text
    assert text.count("<svg") == 2 and "hatched" in text.lower()
    left = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert left == {
        "verdict.json", "report/report.html", "report/junit.xml", "report/pairs.csv",
        "report/figures/rates.svg", "report/figures/latency.svg",
    }  # fmt: skip


def test_all_phases_on_one_page(tmp_path: Path) -> None:
    whole = [series(way, ranks=4, place="out", mode=mode)
             for way in WAYS for mode in ("blocked", "pipelined")]  # fmt: skip
    fewer = [series(way, ranks=ranks) for way in WAYS for ranks in (2, 3, 4)]
    rows = (Calibrated(share=1, trials=40, named=0, wrong=0),
            Calibrated(share=0.5, trials=40, named=40, wrong=0))  # fmt: skip
    facts = tuple(
        node_facts(
            n,
            **{"kernel": "6.1" if n == "a" else "6.2", "speed,_Mbit/s": "1000", "driver": "e1000"},
        )
        for n in "abcd"
    )
    found = Run(tmp_path, None, tournament(calibrated=rows), collectives(*whole, *fewer), facts)
    text = write_run(found, judge(found)).read_text()
    for key in ("collectives", "model", "differences", "calibration"):
        assert f'<section id="{key}">' in text
    assert text.count("<svg") == 4 and "80 % of it" in text
    assert "one node at 0.5" in text and "40 of 40" in text
    left = {file.name for file in (tmp_path / "report").glob("*.csv")}
    assert left == {"pairs.csv", "collectives.csv", "foretold_raw.csv", "foretold_horovod.csv",
                    "nodes.csv"}  # fmt: skip
    frame = pd.read_csv(tmp_path / "report" / "collectives.csv")
    assert len(frame) == 10 * 5 and {"busbw", "algbw", "p95_s", "wrong"} <= set(frame.columns)


def test_what_records_say_is_escaped() -> None:
    gone = {"rates": (), "error": "<script>alert(1)</script>"}
    found = run(tournament(changes={("a", "b"): gone}))
    text = render(found, judge(found), figures_of(found))
    assert "<script>" not in text and "&lt;script&gt;" in text
    assert "<script>" not in junit(found, judge(found))


def test_a_run_without_measurements_has_a_page_too(tmp_path: Path) -> None:
    found = Run(tmp_path, None, None)
    text = write_run(found, judge(found)).read_text()
    assert "UNDECIDED" in text and "Nothing was measured." in text


@pytest.mark.parametrize("count", [2, 20, 70])
def test_heatmaps_of_many_sizes(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    found = tournament(names)  # type: ignore[arg-type]
    figures = figures_of(run(found))
    assert [figure.key for figure in figures] == ["rates", "latency"]
    assert all("<svg" in (figure.svg or "") for figure in figures)
    assert ("n1<" in (figures[0].svg or "")) == (count <= 64)
