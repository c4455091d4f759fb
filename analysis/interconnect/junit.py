"""A run as JUnit XML, for whoever collects test results: a suite for nodes, one for links, one for
collectives, one for the run itself. failure: a fault; error: this run cannot tell; skipped: not
measured. The form is Ant's, the strictest that is published as a schema, which Jenkins takes, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import permutations
from typing import NamedTuple
from xml.etree import ElementTree as Xml

from analysis.interconnect.bandwidth import series_findings
from analysis.interconnect.finding import Finding
from analysis.interconnect.run import Run
from analysis.interconnect.verdict import Verdict
from train.interconnect.collectives.record import Series
from train.interconnect.record import ALL_PAIRS

_TAG = {"fault": "failure", "open": "error"}


class _Case(NamedTuple):
    name: str
    found: list[Finding]
    measured: bool = True


def junit(run: Run, verdict: Verdict) -> str:
    """Times are plain decimals; schemas allow no exponents."""
    suites = Xml.Element("testsuites")
    found = [f for f in verdict.findings if f.weight in _TAG]
    names = [node.name for node in run.tournament.nodes] if run.tournament else []
    measured = (
        {(m.sender, m.receiver) for m in run.tournament.measurements} if run.tournament else set()
    )
    series = run.collectives.series if run.collectives else ()
    # of many nodes most pairs were never to be measured
    links = list(permutations(names, 2)) if len(names) <= ALL_PAIRS else sorted(measured)
    known = {(name,) for name in names} | set(links)
    about: dict[tuple[str, ...], list[Finding]] = {}
    for finding in found:
        about.setdefault(finding.nodes if finding.nodes in known else (), []).append(finding)
    parts: dict[str, tuple[Sequence[_Case], float]] = {
        "nodes": ([_Case(name, about.get((name,), [])) for name in names], 0.0),
        "links": (
            [_Case(f"{a} to {b}", about.get((a, b), []), (a, b) in measured) for a, b in links],
            run.tournament.seconds if run.tournament else 0.0,
        ),
        "collectives": (
            [_Case(_title(s), list(series_findings(s))) for s in series],
            run.collectives.seconds if run.collectives else 0.0,
        ),
        "run": ([_Case("verdict", about.get((), []))], 0.0),
    }  # fmt: skip
    for number, (name, (cases, seconds)) in enumerate(parts.items()):
        suite = _suite(suites, name, cases)
        suite.set("id", str(number))
        suite.set("time", f"{seconds:.3f}")
        suite.set("timestamp", f"{_began(run):%Y-%m-%dT%H:%M:%S}")
    Xml.indent(suites)
    return Xml.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _began(run: Run) -> datetime:
    told = [part.started_at for part in (run.tournament, run.collectives) if part is not None]
    return min(told).astimezone(UTC) if told else datetime(1970, 1, 1, tzinfo=UTC)


def _title(series: Series) -> str:
    operation = series.operation.replace("_", "-")
    return f"{operation} {series.way} {series.place} {series.mode} {series.ranks} ranks"


def _printable(text: str) -> str:
    """Programs' words may hold control characters, which XML does not."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def _suite(parent: Xml.Element, name: str, cases: Sequence[_Case]) -> Xml.Element:
    counts = {"failure": 0, "error": 0, "skipped": 0}
    suite = Xml.SubElement(parent, "testsuite", name=name, package="interconnect",
                           hostname="localhost", tests=str(len(cases)))  # fmt: skip
    Xml.SubElement(suite, "properties")
    for one in cases:
        case = Xml.SubElement(suite, "testcase", classname=f"interconnect.{name}", name=one.name,
                              time="0")  # fmt: skip
        if not one.measured and not one.found:
            counts["skipped"] += 1
            Xml.SubElement(case, "skipped")
        # one case has one result: the gravest
        for finding in sorted(one.found, key=lambda f: f.weight != "fault")[:1]:
            tag = _TAG[finding.weight]
            counts[tag] += 1
            message = _printable(finding.evidence)
            told = Xml.SubElement(case, tag, message=message, type=finding.what)
            told.text = _printable("; ".join(f"{f.what}: {f.evidence}" for f in one.found))
    for stream in ("system-out", "system-err"):
        Xml.SubElement(suite, stream)
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", str(counts["skipped"]))
    return suite
