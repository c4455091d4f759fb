"""A run for a terminal: the matrix, the findings, the verdict, what to type next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from analysis.interconnect.judge.finding import Verdict
from analysis.interconnect.load.run import Run
from analysis.interconnect.show.tables import tables_of
from analysis.interconnect.show.words import bits, headline, lines, sentence
from analysis.page.terminal import print_table
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
    for table in tables_of(run):
        if len(table.data):
            print_table(table, out, notes=True)
    for finding in verdict.findings:
        out.print(Text(sentence(finding), _COLOURS[finding.weight]), soft_wrap=True)
    out.print(Text(f"{verdict.status} {headline(verdict)}", _STATUS[verdict.status]))
    for line in lines(verdict, run.name):
        out.print(Text(line), soft_wrap=True)


def _summary(tournament: Tournament, verdict: Verdict, out: Console) -> None:
    interfaces = ", ".join(sorted({node.interface for node in tournament.nodes}))
    line = f"{len(tournament.nodes)} nodes over {interfaces}"
    if verdict.middle is not None:
        line += f": median {bits(verdict.middle)} one way"
    if (latency := typical_latency(tournament.measurements)) is not None:
        line += f", latency {latency * 1e6:.3g} us"
    if tournament.noise is not None:
        line += f"; one pair's samples scatter by {tournament.noise.cv:.2%}"
    out.print(Text(f"{line}; {tournament.seconds:.0f} s"), soft_wrap=True)


def rates_table(tournament: Tournament) -> RichTable:
    """Row sends, column receives."""
    unit, size = _unit(tournament.measurements)
    table = RichTable(title=f"{unit}, row sends, column receives")
    table.add_column("")
    names = [node.name for node in tournament.nodes]
    for name in names:
        table.add_column(Text(name), justify="right")
    rates = {
        (m.sender, m.receiver): _cell(m, size)
        for m in tournament.measurements
        if m.phase == "tournament"
    }
    for sender in names:
        cells = [sender, *(rates.get((sender, receiver), "") for receiver in names)]
        table.add_row(*map(Text, cells))
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
    latencies = [m.latency_s for m in measurements if m.latency_s is not None]
    return float(np.median(latencies)) if latencies else None
