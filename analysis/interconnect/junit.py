"""A run as JUnit XML, for whoever collects test results: a suite for nodes, one for links, one for
the run itself. failure: a fault; error: this run cannot tell; skipped: not measured."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from xml.etree import ElementTree as Xml

from analysis.interconnect.finding import Finding
from analysis.interconnect.run import Run
from analysis.interconnect.verdict import Verdict

_TAG = {"fault": "failure", "open": "error"}


def junit(run: Run, verdict: Verdict) -> str:
    """Times are plain decimals; schemas allow no exponents."""
    suites = Xml.Element("testsuites", name=f"interconnect {run.name}")
    found = [f for f in verdict.findings if f.weight in _TAG]
    names = [node.name for node in run.tournament.nodes] if run.tournament else []
    measured = (
        {(m.sender, m.receiver) for m in run.tournament.measurements} if run.tournament else set()
    )
    _suite(suites, "nodes", [(name, _about(found, (name,)), True) for name in names])
    _suite(
        suites, "links",
        [
            (f"{a} to {b}", _about(found, (a, b)), (a, b) in measured)
            for a, b in permutations(names, 2)
        ],
    )  # fmt: skip
    known = {(name,) for name in names} | set(permutations(names, 2))
    rest = [finding for finding in found if finding.nodes not in known]
    _suite(suites, "run", [("verdict", rest, True)])
    seconds = run.tournament.seconds if run.tournament else 0.0
    suites.set("time", f"{seconds:.3f}")
    Xml.indent(suites)
    return Xml.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _about(found: Iterable[Finding], nodes: tuple[str, ...]) -> list[Finding]:
    return [finding for finding in found if finding.nodes == nodes]


def _suite(parent: Xml.Element, name: str, cases: list[tuple[str, list[Finding], bool]]) -> None:
    counts = {"failure": 0, "error": 0, "skipped": 0}
    suite = Xml.SubElement(parent, "testsuite", name=name, tests=str(len(cases)))
    for title, found, measured in cases:
        case = Xml.SubElement(suite, "testcase", classname=f"interconnect.{name}", name=title)
        if not measured and not found:
            counts["skipped"] += 1
            Xml.SubElement(case, "skipped", message="not measured: only some partners were")
        # one case has one result: the gravest
        for finding in sorted(found, key=lambda f: f.weight != "fault")[:1]:
            tag = _TAG[finding.weight]
            counts[tag] += 1
            told = Xml.SubElement(case, tag, message=finding.evidence, type=finding.what)
            told.text = "; ".join(f"{f.what}: {f.evidence}" for f in found)
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", str(counts["skipped"]))
