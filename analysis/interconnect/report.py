"""A run as one page with CSV and figures, as JUnit, and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from rich.console import Console
from rich.text import Text

from analysis.interconnect.collectives import collectives_frame, series_findings, title
from analysis.interconnect.facts import facts_frame
from analysis.interconnect.finding import Finding, Verdict, bits, headline, lines, seconds
from analysis.interconnect.run import Run, pairs_frame
from analysis.interconnect.tables import figures_of, findings_table, rates_table, tables_of
from analysis.page.terminal import print_table
from analysis.writing import Case, Result, Suite, csv_text, environment, junit_text, printable
from train.interconnect.record import ALL_PAIRS
from train.record.atomic import write_atomically

VERDICT_NAME = "verdict.json"
#: A matrix of more nodes does not fit on a terminal; the findings name what matters.
WIDEST = 16
_COLOURS = {"fault": "red", "open": "yellow", "remark": "cyan"}
_STATUS = {"PASS": "bold green", "FAIL": "bold red", "UNDECIDED": "bold yellow"}
_TAG: dict[str, Literal["failure", "error"]] = {"fault": "failure", "open": "error"}


def write_run(run: Run, verdict: Verdict, line_bits: float | None = None) -> Path:
    """Write verdict.json and report/ into the run's folder; the page's path.

    Raises:
        OSError: the folder cannot be written.
    """
    page = environment().get_template("interconnect.html.j2")  # escapes all that a record says
    texts = {f"{name}.csv": csv_text(frame) for name, frame in frames_of(run).items()}
    texts["report.html"] = page.render(
        status=verdict.status, headline=headline(verdict), facts=facts(run, verdict),
        findings=findings_table(verdict), lines=lines(verdict, run.name),
        figures=figures_of(run, line_bits), tables=tables_of(run), files=[*texts],
    )  # fmt: skip
    texts["junit.xml"] = junit(run, verdict)
    write_atomically(run.folder / VERDICT_NAME, verdict.model_dump_json(indent=1) + "\n")
    out = run.folder / "report"
    out.mkdir(exist_ok=True)
    for name, text in texts.items():
        write_atomically(out / name, text)
    return out / "report.html"


def frames_of(run: Run) -> dict[str, pd.DataFrame]:
    """File name without its ending -> table, of what was measured."""
    frames: dict[str, pd.DataFrame] = {}
    if run.tournament is not None:
        frames["pairs"] = pairs_frame(run.tournament)
    if run.collectives is not None:
        frames["collectives"] = collectives_frame(run.collectives)
    if run.facts:
        frames["nodes"] = facts_frame(run.facts)
    return frames


def facts(run: Run, verdict: Verdict) -> dict[str, str]:
    """What the numbers rest on: term -> value."""
    terms = {"Run": run.name}
    if run.job is not None:
        terms |= {"Job": f"{run.job.job} on {run.job.nodes}", "Image": run.job.image}
    known = facts_frame(run.facts).query("when == 'before'")
    if unknown := sorted(known.loc[known["value"].isna(), "name"].unique()):
        terms["Not known, so not judged"] = ", ".join(unknown)
    if (tournament := run.tournament) is None:
        return terms
    interfaces = ", ".join(sorted({node.interface for node in tournament.nodes}))
    terms |= {
        "Begun": f"{tournament.started_at:%Y-%m-%d %H:%M:%S} UTC, {tournament.seconds:.0f} s",
        "Nodes": f"{len(tournament.nodes)} over {interfaces}",
        "Measurements": f"{len(tournament.measurements)}, plain TCP, pairs at the same time: up to "
        f"{tournament.company}, connections of each: {tournament.streams}",
    }
    if verdict.middle is not None:
        terms["Median, one way"] = bits(verdict.middle)
    if latencies := [m.latency_s for m in tournament.measurements if m.latency_s is not None]:
        terms["Median latency"] = seconds(float(np.median(latencies)))
    if tournament.noise is not None:
        terms["Noise of one pair"] = f"{tournament.noise.cv:.2%}"
    if (share := tournament.decision.across) is not None:
        terms["Pairs across leaf switches"] = f"{share:.2f} of those within one"
    return terms


def show(run: Run, verdict: Verdict, out: Console) -> None:
    """On a terminal: facts, the matrix, tables, findings, the verdict, what to type next."""
    for term, value in facts(run, verdict).items():
        _say(out, f"{term}: {value}")
    matrix = () if run.tournament is None or len(run.tournament.nodes) > WIDEST else (
        rates_table(run.tournament),
    )  # fmt: skip
    for table in (*matrix, *tables_of(run)):
        if len(table.data):
            print_table(table, out)
    for finding in verdict.findings:
        _say(out, f"{finding.name}: {finding.evidence}", _COLOURS[finding.weight])
    _say(out, f"{verdict.status} {headline(verdict)}", _STATUS[verdict.status])
    for line in lines(verdict, run.name):
        _say(out, line)


def _say(out: Console, line: str, style: str = "") -> None:
    """As it is: no markup, nothing that a terminal obeys."""
    out.print(Text(printable(line), style), soft_wrap=True)


def junit(run: Run, verdict: Verdict) -> str:
    """The text of junit.xml: a case for every node, link and series, and one for the rest."""
    nodes, links = _nodes(run), _links(run)
    about: dict[tuple[str, ...], list[Finding]] = {}
    for finding in verdict.findings:
        key = finding.nodes if finding.nodes in nodes or finding.nodes in links else ()
        about.setdefault(key, []).append(finding)
    cases = {
        name: [_case(" to ".join(key), about.get(key, []), seen) for key, seen in known.items()]
        for name, known in {"nodes": nodes, "links": links}.items()
    }
    series = run.collectives.series if run.collectives else ()
    cases["collectives"] = [_case(title(one), list(series_findings(one))) for one in series]
    cases["run"] = [_case("verdict", about.get((), []))]
    begun = [part.started_at for part in (run.tournament, run.collectives) if part is not None]
    began = min(begun, default=datetime(1970, 1, 1, tzinfo=UTC))
    return junit_text(
        [Suite(name, own, f"interconnect.{name}", "interconnect", began)
         for name, own in cases.items()]
    )  # fmt: skip


def _case(name: str, about: Sequence[Finding], measured: bool = True) -> Case:
    """One case has one result: the gravest."""
    findings = [finding for finding in about if finding.weight in _TAG]
    if not findings:
        return Case(name, None if measured else Result("skipped", "", ""))
    gravest = min(findings, key=lambda finding: finding.weight != "fault")
    text = "; ".join(f"{finding.what}: {finding.evidence}" for finding in findings)
    return Case(name, Result(_TAG[gravest.weight], gravest.what, gravest.evidence, text))


def _nodes(run: Run) -> dict[tuple[str, ...], bool]:
    """Every node that a phase knows, whether it was looked at."""
    job, tournament = run.job, run.tournament
    asked = [*job.expected, *(t.node for step in job.steps for t in step.troubles)] if job else []
    seen = [one.node for one in run.facts]
    seen += [*(node.name for node in tournament.nodes), *tournament.lost] if tournament else []
    return {(name,): name in seen for name in [*seen, *asked] if name != "?"}


def _links(run: Run) -> dict[tuple[str, ...], bool]:
    """Every link, whether it was measured; of many nodes most were never to be."""
    if run.tournament is None:
        return {}
    names = [node.name for node in run.tournament.nodes]
    measured = {(m.sender, m.receiver) for m in run.tournament.measurements}
    links = permutations(names, 2) if len(names) <= ALL_PAIRS else sorted(measured)
    return {link: link in measured for link in links}
