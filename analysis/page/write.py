"""Put a report on disk: report/ with one self-contained page, report.md, CSVs, and answers.json and
junit.xml for programs."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Literal

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from analysis.figures import Figure, standalone, style
from analysis.page.junit import junit
from analysis.page.report import Report
from analysis.writing import csv_text, environment
from train.record.atomic import write_atomically

FOLDER = "report"
ANSWERS_VERSION = 1
Kind = Literal["pdf", "png", "svg"]
#: Names of the tables and figures that a report wrote.
_OWN = ".files.json"


def write_report(
    report: Report, folder: Path, paper: Mapping[str, bytes] = MappingProxyType({})
) -> list[Path]:
    """Write everything below ``folder``/report, each file whole or not at all.

    Tables and figures of an earlier report, which would not be of these data, do not stay. Other
    files do.

    Args:
        paper: further files of figures by name, see :func:`for_paper`.

    Returns:
        the files that a reader opens first: page, text, answers, tables.

    Raises:
        OSError: the folder cannot be written.
    """
    out = folder / FOLDER
    (out / "figures").mkdir(parents=True, exist_ok=True)
    frames = {"runs": report.frames.runs}
    if report.has_epochs:
        frames["epochs"] = report.frames.epochs
    frames |= {table.key: table.data for table in report.tables.values()}
    frames = {name: data for name, data in frames.items() if len(data)}
    tables, drawn = [out / f"{name}.csv" for name in frames], list[Path]()
    for path, data in zip(tables, frames.values(), strict=True):
        write_atomically(path, csv_text(data))
    files: dict[str, str | bytes] = {}
    for figure in report.figures:
        files |= _files_of(figure)
    for name, content in (files | {f"figures/{name}": own for name, own in paper.items()}).items():
        write_atomically(out / name, content)
        drawn.append(out / name)
    texts = [out / "report.html", out / "report.md"]
    for path in texts:
        write_atomically(path, render(report, f"{path.name}.j2"))
    answers = out / "answers.json"
    write_atomically(answers, answers_text(report))
    cases = out / "junit.xml"
    write_atomically(cases, junit(report.frames))
    _keep_only(out, [*tables, *drawn])
    return [*texts, answers, cases, *tables]


def for_paper(report: Report, kept: Mapping[str, Canvas], kind: Kind) -> dict[str, bytes]:
    """Each figure as a file that needs no font of its reader's: name -> content.

    ``kept``: canvas of each SVG, see :func:`analysis.figures.keeping`.
    """
    found = {}
    with style(), mpl.rc_context({"pdf.fonttype": 42, "svg.fonttype": "path", "savefig.dpi": 300}):
        for figure in report.figures:
            if canvas := kept.get(figure.svg or ""):
                canvas.savefig(content := io.BytesIO(), format=kind)
                found[f"{figure.key}.{kind}"] = content.getvalue()
    return found


def _keep_only(out: Path, files: Iterable[Path]) -> None:
    """Remove what the report before this one noted as its own; nobody else's files."""
    note, made = out / _OWN, {path.relative_to(out).as_posix() for path in files}
    with contextlib.suppress(OSError, ValueError):
        for name in set(map(str, json.loads(note.read_text(encoding="utf-8")))) - made:
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


def render(report: Report, template: str) -> str:
    """report.md.j2 or report.html.j2 filled in."""
    return environment().get_template(template).render(report=report)


def _files_of(figure: Figure) -> dict[str, str]:
    """Below the report's folder: names and texts."""
    files = {f"figures/{figure.key}.csv": csv_text(figure.data)}
    if figure.svg is not None:
        files[f"figures/{figure.key}.svg"] = standalone(figure.svg)
    return files
