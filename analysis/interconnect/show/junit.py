"""A run as JUnit XML, for whoever collects test results: a suite for nodes, one for links, one for
collectives, one for the run itself. failure: a fault; error: this run cannot decide; skipped: not
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import permutations
from typing import Literal

from analysis.interconnect.judge.collectives import series_findings
from analysis.interconnect.judge.finding import Finding, Verdict
from analysis.interconnect.load.run import Run
from analysis.writing import Case, Result, Suite, junit_text
from train.interconnect.collectives.record import Series
from train.interconnect.record import ALL_PAIRS

_TAG: dict[str, Literal["failure", "error"]] = {"fault": "failure", "open": "error"}


def junit(run: Run, verdict: Verdict) -> str:
    """The text of junit.xml."""
    findings = [f for f in verdict.findings if f.weight in _TAG]
    nodes = _nodes(run)
    names = [node.name for node in run.tournament.nodes] if run.tournament else []
    measured = (
        {(m.sender, m.receiver) for m in run.tournament.measurements} if run.tournament else set()
    )
    series = run.collectives.series if run.collectives else ()
    # of many nodes most pairs were never to be measured
    links = list(permutations(names, 2)) if len(names) <= ALL_PAIRS else sorted(measured)
    known = {(name,) for name in nodes} | set(links)
    about: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        about.setdefault(finding.nodes if finding.nodes in known else (), []).append(finding)
    parts: dict[str, tuple[Sequence[Case], float]] = {
        "nodes": ([_case(n, about.get((n,), []), looked) for n, looked in nodes.items()], 0.0),
        "links": (
            [_case(f"{a} to {b}", about.get((a, b), []), (a, b) in measured) for a, b in links],
            run.tournament.seconds if run.tournament else 0.0,
        ),
        "collectives": (
            [_case(_title(s), list(series_findings(s))) for s in series],
            run.collectives.seconds if run.collectives else 0.0,
        ),
        "run": ([_case("verdict", about.get((), []))], 0.0),
    }  # fmt: skip
    return junit_text(
        [Suite(name, cases, f"interconnect.{name}", "interconnect", _began(run), seconds)
         for name, (cases, seconds) in parts.items()]
    )  # fmt: skip


def _case(name: str, findings: list[Finding], measured: bool = True) -> Case:
    """One case has one result: the gravest."""
    if not findings:
        return Case(name, None if measured else Result("skipped", "", ""))
    gravest = min(findings, key=lambda finding: finding.weight != "fault")
    text = "; ".join(f"{finding.what}: {finding.evidence}" for finding in findings)
    return Case(name, Result(_TAG[gravest.weight], gravest.what, gravest.evidence, text))


def _nodes(run: Run) -> dict[str, bool]:
    """Every node that a phase knows, whether it was looked at; those of the tournament first."""
    job, tournament = run.job, run.tournament
    seen = [*(node.name for node in tournament.nodes), *tournament.lost] if tournament else []
    seen += [one.node for one in run.facts]
    asked = [*job.expected, *(t.node for step in job.steps for t in step.troubles)] if job else []
    return dict.fromkeys(seen, True) | {
        name: False for name in asked if name not in seen and name != "?"
    }


def _began(run: Run) -> datetime:
    begun = [part.started_at for part in (run.tournament, run.collectives) if part is not None]
    return min(begun).astimezone(UTC) if begun else datetime(1970, 1, 1, tzinfo=UTC)


def _title(series: Series) -> str:
    operation = series.operation.replace("_", "-")
    return f"{operation} {series.way} {series.place} {series.mode} {series.ranks} ranks"
