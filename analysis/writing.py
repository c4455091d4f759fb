"""How pages, CSVs and JUnit files are written; all text in them is escaped."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree as Xml

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.console import Console

from analysis.plots.figure import Figure, inline

TEMPLATES = Path(__file__).parent / "page" / "templates"
#: Where no terminal says how wide it is (a log, a pipe): wide enough for the widest table.
WIDTH = 160


class Result(NamedTuple):
    """Why a case did not pass."""

    tag: Literal["failure", "error", "skipped"]
    kind: str
    message: str
    text: str = ""


class Case(NamedTuple):
    name: str
    result: Result | None = None
    seconds: float = 0.0


class Suite(NamedTuple):
    name: str
    cases: Sequence[Case]
    classname: str
    package: str
    began: datetime


def console() -> Console:
    """A terminal, or lines of WIDTH characters."""
    shown = Console()
    return shown if shown.is_terminal else Console(width=WIDTH)


def environment() -> Environment:
    """Templates in which everything that a record says is escaped."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_together,
    )
    made.filters["inline_svg"] = _inline
    made.filters["csv"] = _script_safe
    return made


def _together(value: Any) -> Any:
    """No line of a page ends between a number and its unit; Markup stays as it is."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return re.sub(r"(?<=\d) (?=(?:%|s|ms)(?!\w))", "\u00a0", value) if plain else value


def csv_text(table: pd.DataFrame) -> str:
    """Comma separated with a heading; a null is an empty field, a list a JSON array."""
    lists = {str(name): _as_json(column) for name, column in table.select_dtypes("object").items()}
    return table.assign(**lists).to_csv(index=False, lineterminator="\n")


def _as_json(column: pd.Series[Any]) -> Any:
    codes, values = pd.factorize(column)  # of a million rows few differ
    told = [
        json.dumps(one, ensure_ascii=False) if isinstance(one, tuple) else one for one in values
    ]
    return np.array([*told, None], object)[codes]  # -1 is the last one, null


def noted_files(note: Path) -> set[str]:
    """Names that a writer noted as those of its own files; none where there is no sound note."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return {*map(str, json.loads(note.read_text(encoding="utf-8")))}
    return set()


def junit_text(suites: Sequence[Suite]) -> str:
    """JUnit XML in Ant's form, the strictest that is published as a schema, which Jenkins takes,
    too. Times are plain decimals; schemas allow no exponents."""
    root = Xml.Element("testsuites")
    for number, suite in enumerate(suites):
        tags = Counter(case.result.tag for case in suite.cases if case.result is not None)
        made = Xml.SubElement(
            root, "testsuite", name=printable(suite.name), package=suite.package,
            hostname="localhost", tests=str(len(suite.cases)), failures=str(tags["failure"]),
            errors=str(tags["error"]), skipped=str(tags["skipped"]),
            time=f"{sum(case.seconds for case in suite.cases):.3f}",
            timestamp=f"{suite.began.astimezone(UTC):%Y-%m-%dT%H:%M:%S}", id=str(number),
        )  # fmt: skip
        Xml.SubElement(made, "properties")
        for case in suite.cases:
            _add(case, made, suite.classname)
        for stream in ("system-out", "system-err"):
            Xml.SubElement(made, stream)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(case: Case, suite: Xml.Element, classname: str) -> None:
    made = Xml.SubElement(suite, "testcase", classname=printable(classname),
                          name=printable(case.name), time=f"{case.seconds:.3f}")  # fmt: skip
    if case.result is not None:
        result = Xml.SubElement(made, case.result.tag)
        if case.result.message:
            result.set("message", printable(case.result.message))
        if case.result.tag != "skipped":
            result.set("type", case.result.kind)
            result.text = printable(case.result.text or case.result.message)


def printable(text: str) -> str:
    """What programs print may hold control characters, which XML does not, and terminals obey."""
    return "".join(c if c.isprintable() or c in "\n\t\u00a0" else "?" for c in text)


def _script_safe(table: pd.DataFrame) -> Markup:
    """CSV inside a script element, which only "</" and "<!--" could leave."""
    text = csv_text(table).replace("</", "<\\/").replace("<!--", "<\\!--")
    return Markup(text)  # noqa: S704


def _inline(figure: Figure) -> Markup:
    # the SVG is our own drawing; matplotlib escapes the texts in it
    return Markup(inline(figure.svg or "", figure.key, str(escape(figure.title))))  # noqa: S704
