"""A run for a terminal: the matrix, the findings, the verdict, what to type next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.interconnect.admin import lines
from analysis.interconnect.finding import Finding
from analysis.interconnect.run import Run
from analysis.interconnect.tables import View, tables_of
from analysis.interconnect.units import bits
from analysis.interconnect.verdict import Verdict
from train.interconnect.record import Measurement, Tournament

#: A matrix of more nodes does not fit on a terminal; the findings name what matters.
WIDEST = 16
_COLOURS = {"fault": "red", "open": "yellow", "remark": "cyan"}
_STATUS = {"PASS": "bold green", "FAIL": "bold red", "UNDECIDED": "bold yellow"}


def show(run: Run, verdict: Verdict, out: Console) -> None:
    if run.tournament is not None:
        _summary(run.tournament, verdict, out)
        if len(run.tournament.nodes) <= WIDEST:
            out.print(rates_table(run.tournament))
    for view in tables_of(run):
        if view.rows:
            out.print(view_table(view))
    for finding in verdict.findings:
        out.print(Text(sentence(finding), _COLOURS[finding.weight]), soft_wrap=True)
    out.print(Text(f"{verdict.status} {headline(verdict)}", _STATUS[verdict.status]))
    for line in lines(verdict, run.name):
        out.print(Text(line), soft_wrap=True)


def view_table(view: View) -> Table:
    table = Table(title=view.title)
    for column in view.columns:
        table.add_column(column)
    for row in view.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def seen(verdict: Verdict) -> list[str]:
    """What a fault would have had to be to be seen."""
    told = []
    if verdict.visible is not None:
        told.append(f"node or direction below {verdict.visible:.2f} of the median")
    if verdict.visible_links is not None:
        told.append(f"link below {verdict.visible_links:.2f} of what its ends reach with others")
    return told or ["fault among what was measured"]


def headline(verdict: Verdict) -> str:
    """The reason for the verdict in one line."""
    if verdict.status == "PASS":
        return f"no {', no '.join(seen(verdict))}"
    weight = "fault" if verdict.status == "FAIL" else "open"
    return "; ".join(
        f"{finding.what} {' -> '.join(finding.nodes)}".strip()
        for finding in verdict.findings
        if finding.weight == weight
    )


def sentence(finding: Finding) -> str:
    where = f" {' -> '.join(finding.nodes)}" if finding.nodes else ""
    return f"{finding.what}{where}: {finding.evidence}"


def _summary(found: Tournament, verdict: Verdict, out: Console) -> None:
    line = f"{len(found.nodes)} nodes over {', '.join(sorted({n.interface for n in found.nodes}))}"
    if verdict.middle is not None:
        line += f": median {bits(verdict.middle)} one way"
    if (latency := typical_latency(found.measurements)) is not None:
        line += f", latency {latency * 1e6:.3g} us"
    if found.noise is not None:
        line += f"; one pair's samples scatter by {found.noise.cv:.2%}"
    out.print(Text(f"{line}; {found.seconds:.0f} s"), soft_wrap=True)


def rates_table(found: Tournament) -> Table:
    """Row sends, column receives."""
    unit, size = _unit(found.measurements)
    table = Table(title=f"{unit}, row sends, column receives")
    table.add_column("")
    names = [node.name for node in found.nodes]
    for name in names:
        table.add_column(name, justify="right")
    rates = {
        (m.sender, m.receiver): _cell(m, size)
        for m in found.measurements
        if m.phase == "tournament"
    }
    for sender in names:
        table.add_row(sender, *(rates.get((sender, receiver), "") for receiver in names))
    return table


def _unit(measurements: Sequence[Measurement]) -> tuple[str, float]:
    rates = [rate for m in measurements for rate in m.rates]
    return ("Gbit/s", 1e9) if rates and np.median(rates) >= 1e9 else ("Mbit/s", 1e6)


def _cell(measurement: Measurement, size: float) -> str:
    if not measurement.rates:
        return "none"
    return f"{np.median(measurement.rates) / size:.1f}"


def typical_latency(measurements: Sequence[Measurement]) -> float | None:
    """Seconds, the median of the pairs' medians."""
    told = [m.latency_s for m in measurements if m.latency_s is not None]
    return float(np.median(told)) if told else None
