"""The report on a terminal: answers and paths after `report`, all tables after `summary`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from analysis.page.report import Report
from analysis.table import Table
from analysis.writing import printable

#: Rows of one of several tables on a terminal.
MOST_ROWS = 40
#: The tables that `report` prints below the answers.
_FIRST = ("convergence", "scaling")


def print_report(report: Report, out: Console, paths: Sequence[Path] = ()) -> None:
    """The answers; with ``paths`` of a report the two tables that most look for, and these; else
    every table."""
    _print_head(report, out)
    for key in _FIRST if paths else report.tables:
        table = report.tables.get(key)
        if table is not None and len(table.data):
            out.print()
            print_table(table, out, MOST_ROWS)
    if paths:
        out.print()
    for path in paths:
        out.print(_text(str(path)), soft_wrap=True)


def _print_head(report: Report, out: Console) -> None:
    out.print(_text(report.title, style="bold"))
    if report.lead:
        out.print(_text(report.lead), soft_wrap=True)
    for number, answer in enumerate(report.answers, start=1):
        question = Text(f"{number}  {answer.question} ", style="bold")
        out.print(question.append_text(_text(answer.verdict, style="not bold")), soft_wrap=True)
        if answer.details:
            out.print(_text(f"   {answer.details}", style="dim"), soft_wrap=True)
    for caution in report.cautions:
        style = "bold red" if caution.is_alarm else "yellow"
        out.print(_text(f"!  {caution.text}", style=style), soft_wrap=True)
    for topic in report.topics:
        for sentence in topic.failures:
            out.print(_text(f"!  {topic.title}: {sentence}", style="bold red"), soft_wrap=True)


def _text(text: str, style: str = "") -> Text:
    """What a record says as it is: no markup, nothing that a terminal obeys."""
    return Text(printable(text), style=style)


def print_table(table: Table, out: Console, most: int | None = None) -> None:
    """With its notes; ``most``: rows of a table that `report` writes whole."""
    found = table.shown(len(table.data) if most is None else most)
    shown = RichTable(title=_text(table.title), title_justify="left")
    for column in found.columns:
        shown.add_column(_text(column.title), justify=column.align, overflow="fold")
    for row in found.rows:
        shown.add_row(*(_text(cell) for cell in row))
    out.print(shown)
    if len(found.rows) < len(table.data):
        rows = f"{len(found.rows):,} of {len(table.data):,} rows"
        out.print(_text(f"{rows}; make report writes all to report/{table.key}.csv."))
    for note in found.notes:
        out.print(_text(note, style="dim"))
