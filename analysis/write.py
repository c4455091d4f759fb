"""Put a report on disk: report/ with CSVs, figures, report.md and one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.notices import ALARM
from analysis.plots import Figure, inline, standalone
from analysis.report import Report
from train.record.atomic import write_atomically

FOLDER = "report"
_TEMPLATES = Path(__file__).parent / "templates"
#: Markdown's own signs; an underscore inside a name is none in GitHub's flavour.
_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\`*[]|"})


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write everything below ``folder``/report, each file whole or not at all.

    Returns:
        the files that a reader opens first: page, text, tables.

    Raises:
        OSError: the folder cannot be written.
    """
    out = folder / FOLDER
    (out / "figures").mkdir(parents=True, exist_ok=True)
    tables = [out / f"{name}.csv" for name in report.frames]
    for path, table in zip(tables, report.frames.values(), strict=True):
        write_atomically(path, csv_text(table))
    for figure in report.figures:
        _write_figure(figure, out / "figures")
    texts = [out / "report.html", out / "report.md"]
    for path in texts:
        write_atomically(path, render(report, f"{path.name}.j2"))
    return [*texts, *tables]


def render(report: Report, template: str) -> str:
    """report.md.j2 or report.html.j2 filled in; everything that a record says is escaped."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = markdown
    environment.filters["inline_svg"] = _inline
    return environment.get_template(template).render(report=report, alarm=ALARM)


def csv_text(table: pd.DataFrame) -> str:
    """Comma separated with a heading; a null is an empty field."""
    return table.to_csv(index=False, lineterminator="\n")


def markdown(value: Any) -> Markup:
    """Text as one line of Markdown, with no sign in it that means something there or in HTML."""
    line = " ".join(str(value).split()).translate(_MARKDOWN)
    # quotes mean nothing outside of a tag, and none is made here
    return Markup(line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))  # noqa: S704


def _inline(figure: Figure) -> Markup:
    # the SVG is our own drawing; matplotlib escapes the texts in it
    return Markup(inline(figure.svg or "", figure.key, str(escape(figure.title))))  # noqa: S704


def _write_figure(figure: Figure, out: Path) -> None:
    write_atomically(out / f"{figure.key}.csv", csv_text(figure.data))
    drawing = out / f"{figure.key}.svg"
    if figure.svg is None:
        drawing.unlink(missing_ok=True)  # one of an earlier report would not be of this data
    else:
        write_atomically(drawing, standalone(figure.svg))
