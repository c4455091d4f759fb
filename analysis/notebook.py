"""A report in a notebook: DataFrames, matplotlib's figures, and the first screen as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.page.report import Report
from analysis.page.write import render
from analysis.records.columns import FRAMES
from analysis.several import report_of


@dataclass(frozen=True, repr=False)
class NotebookReport:
    """What ``analysis.report`` gives.

    tables: by name: the frames (runs, epochs, ranks, ...) and every table of the page with a row.
    figures: by name; ``figures["efficiency"].savefig("efficiency.pdf")`` writes one.
    """

    tables: Mapping[str, pd.DataFrame]
    figures: Mapping[str, Figure]
    page: Report

    def __repr__(self) -> str:
        said = (f"{answer.question} {answer.text}" for answer in self.page.answers)
        return "\n".join([self.page.title, *said])

    def _repr_html_(self) -> str:
        return render(self.page, "notebook.html.j2")


def report(*folders: str | PathLike[str]) -> NotebookReport:
    """The report of a sweep's results, or of several sweeps together; nothing is written.

    Args:
        folders: results/<sweep>, one or more.

    Raises:
        SweepError: one of them is no sweep, or two have one name.
        TypeError: no folder is given.
    """
    if not folders:
        raise TypeError("report() needs at least one folder: report('results/quickstart')")
    page = report_of([Path(folder) for folder in folders])
    tables = {name: getattr(page.frames, name) for name in FRAMES}
    tables |= {name: table.data for name, table in page.tables.items()}
    figures = {figure.key: figure.svg.canvas for figure in page.figures if figure.svg}
    return NotebookReport({name: own for name, own in tables.items() if len(own)}, figures, page)
