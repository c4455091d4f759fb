"""Runs as JUnit XML."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as Xml

from analysis.interconnect.report import junit
from analysis.interconnect.run import Run
from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import (
    CONFIRMED,
    SLOW,
    collectives,
    measurement,
    node_facts,
    note,
    retest,
    run,
    series,
    step,
    tournament,
)
from train.interconnect.record import Node, Noise, Trouble


def cases(found: Run) -> dict[str, list[str]]:
    """suite/case -> tags inside it."""
    root = Xml.fromstring(junit(found, judge(found)))
    return {
        f"{suite.get('name')}/{case.get('name')}": [child.tag for child in case]
        for suite in root for case in suite.iter("testcase")
    }  # fmt: skip


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


def test_without_a_tournament_each_node_has_its_own_case() -> None:
    """Faults by what nodes say of themselves, or by how their programs ended."""
    facts = tuple(node_facts(n, MTU="1400" if n in "cd" else "1500") for n in "abcde")
    assert cases(run(None, facts=facts)) == {
        "nodes/a": [], "nodes/b": [], "nodes/c": ["failure"], "nodes/d": ["failure"],
        "nodes/e": [], "run/verdict": ["error"],
    }  # fmt: skip
    steps = step("tournament", Trouble(node="b", what="container", found="no such image"),
                 Trouble(node="?", what="launch", found="no such partition"), code=1)  # fmt: skip
    assert cases(run(None, note(steps, expected="abc"))) == {
        "nodes/a": ["skipped"], "nodes/b": ["error"], "nodes/c": ["skipped"],
        "run/verdict": ["error"],
    }  # fmt: skip


def test_junit_has_a_case_for_every_node_and_link_and_the_run() -> None:
    whole = tournament()
    found = cases(run(whole))
    assert len(found) == 4 + 12 + 1 and not any(found.values())
    found = cases(run(tournament("abc"), note()))
    assert found["nodes/d"] == ["error"] and found["run/verdict"] == [], "it took no part"
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
