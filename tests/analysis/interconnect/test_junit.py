"""Runs as JUnit XML."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as Xml

import pytest

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


WHOLE = tournament(slow=SLOW, retests=CONFIRMED)
#: Three links of node a were not measured.
MISSING = WHOLE.model_copy(update={"measurements": WHOLE.measurements[3:]})


def test_junit_has_the_form_of_ant() -> None:
    """The rules of the strictest published schema, Apache Ant's JUnit.xsd by Windy Road, in short;
    outputs of real runs were validated with the schema itself."""
    found = run(MISSING, note(expected="abcde"), collectives=collectives(
        series(), series(points=(), error="a <b> & \x1b[0m c")))  # fmt: skip
    root = Xml.fromstring(junit(found, judge(found)))
    assert root.tag == "testsuites" and not root.attrib
    assert [suite.get("id") for suite in root] == ["0", "1", "2", "3"]
    for suite in root:
        tags = [child.tag for child in suite]
        assert tags[0] == "properties" and tags[-2:] == ["system-out", "system-err"]
        assert set(tags[1:-2]) == {"testcase"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
    for element in (one for one in root.iter() if one.tag in ATTRIBUTES):
        assert set(element.attrib) == ATTRIBUTES[element.tag]
        assert re.fullmatch(r"\d+(\.\d+)?", element.get("time", "0"))
        assert element.tag != "testcase" or len(element) <= 1
    assert {one.tag for one in root.iter()} > set(ATTRIBUTES), "of each a case"


UNSURE = tournament(noise=Noise(pair=("b", "c"), cv=0.2, together=None), decision={
    "suspects": (), "undecided": "half of them", "middle": 1e8, "visible": 0.9,
})  # fmt: skip
FAULTY = run(tournament(slow=SLOW | {("a", "b"): 0.25}, retests=(
    *CONFIRMED, retest("link", ("a", "b"), 0.25, "cpu"),
)))  # fmt: skip
TROUBLED = step("tournament", Trouble(node="b", what="container", found="no such image"),
                Trouble(node="?", what="launch", found="no such partition"), code=1)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "count", "some"),
    [
        (FAULTY, 17, {"nodes/c": ["failure"], "links/a to b": ["error"], "nodes/a": []}),
        (run(UNSURE), 17, {"run/verdict": ["error"], "links/b to c": []}),
        (run(tournament("abc"), note()), 11, {"nodes/d": ["error"], "run/verdict": []}),
        (run(MISSING), 4 + 12 + 1, {"links/a to b": ["skipped"], "links/b to a": []}),
        (run(None), 1, {"run/verdict": ["error"]}),
        # by what nodes say of themselves, or by how their programs ended
        (run(None, facts=tuple(node_facts(n, MTU="1400" if n == "c" else "1500") for n in "abc")),
         4, {"nodes/a": [], "nodes/b": [], "nodes/c": ["failure"], "run/verdict": ["error"]}),
        (run(None, note(TROUBLED, expected="abc")), 4,
         {"nodes/a": ["skipped"], "nodes/b": ["error"], "run/verdict": ["error"]}),
    ],
)  # fmt: skip
def test_a_case_for_every_node_and_link_and_the_run(
    found: Run, count: int, some: dict[str, list[str]]
) -> None:
    shown = cases(found)
    assert len(shown) == count and shown | some == shown


def test_junit_of_many_nodes_lists_the_links_that_were_to_be_measured() -> None:
    names = [f"n{number}" for number in range(130)]
    told = tuple(measurement(a, b) for a, b in pairwise(names))
    nodes = tuple(Node(name=n, interface="eth0", address="10.0.0.1") for n in names)
    whole = tournament().model_copy(update={"measurements": told, "nodes": nodes})
    links = [name for name in cases(run(whole)) if name.startswith("links/")]
    assert len(links) == 129 and "links/n0 to n1" in links
