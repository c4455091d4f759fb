"""The report on a terminal: tables and paths after `report`, tables with notes after `summary`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from analysis.display import Row, Table, plain_rows, with_context
from analysis.notices import ALARM
from analysis.report import Report

#: Where no terminal says how wide it is (a log, a pipe): wide enough for the widest table.
WIDTH = 160
#: Tables that may have a row per class, and from how many rows on they would hide the others.
LONG, MOST_ROWS = frozenset({"classification"}), 40


def console() -> Console:
    shown = Console()
    return shown if shown.is_terminal else Console(width=WIDTH)


def print_report(report: Report, paths: Sequence[Path], out: Console) -> None:
    """The tables without their footnotes, the verdicts, and where the rest is."""
    print_tables(report, out, notes=False)
    for claim in plain_rows(report.frames["claims"]):
        out.print(Text(_verdict(claim)))
    for pair in plain_rows(report.frames["frameworks"]):
        out.print(Text(_frameworks(pair)))
    shown = [path for path in paths if path.suffix in (".html", ".md")]
    folder = paths[0].parent
    out.print(Text(f"tables as CSV, figures and footnotes: {folder}"), soft_wrap=True)
    for path in shown:
        out.print(Text(str(path)), soft_wrap=True)


def _verdict(claim: Row) -> str:
    """One comparison in words, with what would decide it where it is open."""
    at = "" if claim["gpus"] is None else f" at {claim['gpus']} rank(s)"
    line = f"{with_context(claim)} against {claim['reference']}{at}: {claim['verdict']}"
    if claim["difference"] is not None:
        line += f", difference in validation accuracy {claim['difference']:+.3f}"
    if claim["why"]:
        line += f" ({claim['why']})"
    if claim["seeds_in_family"] is not None:
        line += f"; about {claim['seeds_in_family']} runs per arm would decide"
    return line


def _frameworks(pair: Row) -> str:
    """One comparison of libraries in words."""
    line = f"{pair['reference']} against {pair['framework']}, {with_context(pair)}"
    line += f" at {pair['gpus']} rank(s): throughput {pair['speed']}"
    if pair["ratio"] is not None:
        line += f", ratio {pair['ratio']:.2f}"
    line += f"; accuracy {pair['verdict']}"
    return line if pair["difference"] is None else f"{line}, difference {pair['difference']:+.3f}"


def print_tables(report: Report, out: Console, *, notes: bool = True) -> None:
    """Every table of results, and the cells that are in none."""
    out.print(Text(f"{report.title}: {report.counts}", style="bold"))
    for warning in report.warnings:
        alarming = warning.startswith(ALARM)
        out.print(Text(f"! {warning}", style="bold red" if alarming else "yellow"))
    tables = report.tables
    shown = (
        tables.convergence,
        tables.scaling,
        *((tables.claims, *tables.others) if notes else ()),
    )
    for table in shown:
        out.print()
        _print_table(table, out, notes=notes)
    out.print()
    _print_problems(report, out)


def _print_table(table: Table, out: Console, *, notes: bool) -> None:
    if not table.rows:
        out.print(Text(f"{table.title}. {table.empty}"))
        return
    if len(table.rows) > MOST_ROWS and table.key in LONG:
        out.print(Text(f"{table.title}. {len(table.rows)} rows: read them in the report."))
        return
    shown = RichTable(title=Text(table.title), title_justify="left")
    for column in table.columns:
        shown.add_column(Text(column.head), justify=column.align, overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))  # Text: no markup in what a record says
    out.print(shown)
    for note in table.notes if notes else ():
        out.print(Text(note, style="dim"))


def _print_problems(report: Report, out: Console) -> None:
    for problem in report.problems:
        kind = problem.kind if problem.status == "none" else f"{problem.kind} ({problem.status})"
        rank = "" if problem.rank is None else f" (rank {problem.rank})"
        todo = f" -> {problem.what_to_do}" if problem.what_to_do else ""
        out.print(Text(f"{kind} {problem.cell_id}: {problem.reason}{rank}{todo}"), soft_wrap=True)
