"""Put a report on disk: report/ with one self-contained page, CSVs, and answers.json and junit.xml
for programs."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path, PurePosixPath
from typing import Literal

import matplotlib as mpl

from analysis.page.junit import junit
from analysis.page.report import Report
from analysis.plots.figure import style, to_svg
from analysis.writing import csv_text, environment, noted_files
from train.record.atomic import write_atomically

FOLDER = "report"
ANSWERS_VERSION = 2
Kind = Literal["pdf", "png", "svg"]
#: Names of the tables and figures that a report wrote.
_OWN = ".files.json"


def write_report(report: Report, folder: Path, paper: Kind | None = None) -> list[Path]:
    """Write everything below ``folder``/report, each file whole or not at all.

    Tables and figures of an earlier report, which would not be of these data, do not stay. Other
    files do.

    Args:
        paper: each figure as a file of this kind, too, see :func:`for_paper`.

    Returns:
        the files that a reader opens first: page, answers.

    Raises:
        OSError: the folder cannot be written.
    """
    out = folder / FOLDER
    (out / "figures").mkdir(parents=True, exist_ok=True)
    tables = {"runs": report.frames.runs}
    tables |= {table.key: table.data for table in report.tables.values()}
    files: dict[str, str | bytes] = {
        f"{name}.csv": csv_text(data) for name, data in tables.items() if len(data)
    }
    for figure in report.figures:
        files[f"figures/{figure.key}.csv"] = csv_text(figure.data)
        if figure.svg is not None:
            files[f"figures/{figure.key}.svg"] = figure.svg
    if paper is not None:
        files |= for_paper(report, paper)
    first = {"report.html": render(report), "answers.json": answers_text(report)}
    for name, content in (files | first | {"junit.xml": junit(report.frames)}).items():
        write_atomically(out / name, content)
    _keep_only(out, set(files))
    return [out / name for name in first]


def for_paper(report: Report, kind: Kind) -> dict[str, bytes]:
    """Each figure as a file that needs no font of its reader's: path below report/ -> content."""
    found = {}
    with style(), mpl.rc_context({"pdf.fonttype": 42, "svg.fonttype": "path", "savefig.dpi": 300}):
        for figure in report.figures:
            if figure.svg:
                canvas, content = figure.svg.canvas, io.BytesIO()
                if kind == "svg":
                    content.write(to_svg(canvas).encode())
                else:
                    canvas.savefig(content, format=kind)
                found[f"figures/{figure.key}.{kind}"] = content.getvalue()
    return found


def _keep_only(out: Path, made: set[str]) -> None:
    """Remove what the report before this one noted as its own; nobody else's files."""
    note = out / _OWN
    with contextlib.suppress(OSError):
        for name in noted_files(note) - made:
            if name.removeprefix("figures/") == PurePosixPath(name).name:  # never outside
                (out / name).unlink(missing_ok=True)
    write_atomically(note, json.dumps(sorted(made)) + "\n")


def answers_text(report: Report) -> str:
    """answers.json: what the first screen says, for programs."""
    said = {
        "schema_version": ANSWERS_VERSION,
        "sweep": report.name,
        "title": report.title,
        "context": report.context,
        "lead": report.lead,
        "answers": [answer.as_json() for answer in report.answers],
        "cautions": [{"text": c.text, "touches": c.touches, "alarm": c.is_alarm}
                     for c in report.cautions],
        "exit_code": report.exit_code,
    }  # fmt: skip
    return json.dumps(said, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render(report: Report, template: str = "report.html.j2") -> str:
    """The page, or another template of a report, filled in."""
    return environment().get_template(template).render(report=report)
