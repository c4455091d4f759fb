"""Put a report on disk: report/ with one self-contained page, report.md, CSVs, and answers.json,
forecast.json and junit.xml for programs."""

from __future__ import annotations

import json
from pathlib import Path

from analysis.figures import Figure, standalone
from analysis.page.junit import junit
from analysis.page.report import Report
from analysis.prediction.forecast import FORECAST_NAME
from analysis.writing import csv_text, environment
from train.record.atomic import write_atomically

FOLDER = "report"
ANSWERS_VERSION = 1


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write everything below ``folder``/report, each file whole or not at all.

    Tables and figures of an earlier report, which would not be of these data, do not stay.

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
    tables = [out / f"{name}.csv" for name in frames]
    for path, data in zip(tables, frames.values(), strict=True):
        write_atomically(path, csv_text(data))
    for topic in report.topics:
        for figure in topic.figures:
            _write_figure(figure, out / "figures")
    texts = [out / "report.html", out / "report.md"]
    for path in texts:
        write_atomically(path, render(report, f"{path.name}.j2"))
    answers = out / "answers.json"
    write_atomically(answers, answers_text(report))
    cases = out / "junit.xml"
    write_atomically(cases, junit(report.frames))
    ahead = out / FORECAST_NAME
    if report.forecast is None:
        ahead.unlink(missing_ok=True)
    else:
        write_atomically(ahead, report.forecast.to_json())
    drawn = {figure.key for topic in report.topics for figure in topic.figures}
    kept = {*(path.stem for path in tables), *drawn}
    for path in [*out.glob("*.csv"), *(out / "figures").glob("*.*")]:
        if path.stem not in kept:
            path.unlink()
    return [*texts, answers, cases, *tables]


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


def _write_figure(figure: Figure, out: Path) -> None:
    write_atomically(out / f"{figure.key}.csv", csv_text(figure.data))
    drawing = out / f"{figure.key}.svg"
    if figure.svg is None:
        drawing.unlink(missing_ok=True)  # one of an earlier report would not be of this data
    else:
        write_atomically(drawing, standalone(figure.svg))
