"""Does a sweep meet its thresholds? Each condition is judged by its 95 % interval.

passed: the whole interval is at or above the threshold; failed: all of it is below, or every run
diverged; undecided: the rest, and each planned condition without a usable run. Each interval stands
by itself: of many conditions that lie just above a threshold, 2.5 % fail by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis.page.junit import began
from analysis.page.report import Report
from analysis.records.frames import Frames
from analysis.stats.intervals import t_quantile
from analysis.stats.power import MARGIN, MAX_RUNS
from analysis.table import (
    Column,
    Estimate,
    Row,
    Table,
    count,
    estimate_in,
    frame,
    joined,
    number,
    plain_rows,
    runs_in_words,
)
from analysis.topics.names import NAMES, mode, ranks_text, with_context
from analysis.writing import Case, Result, Suite

Verdict = Literal["passed", "failed", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "undecided")
PASSED, FAILED, UNDECIDED = 0, 1, 3
NO_RUN = "no usable run of a planned condition"
_THREE = number(3)
#: Conditions that are named in sentences of one verdict.
_NAMED = 5
COLUMNS: tuple[Column, ...] = (
    Column("what", "string", "what"),
    *NAMES,
    Column("mode", "string", "mode", only_if_varied=True),
    Column("gpus", "Int64", "ranks"),
    Column("global_batch", "Int64", "global batch"),
    Column("value", "Float64", "value", format=_THREE, estimate=True),
    Column("least", "Float64", "at least", format=lambda value: f"{value:g}"),
    Column("verdict", "string", "verdict"),
    Column("why", "string", "why", wide=True),
)


@dataclass(frozen=True)
class Threshold:
    """``least`` of ``column`` in each row of a table of the report; ``arms``: sets of runs that the
    interval is made from."""

    what: str
    table: str
    column: str
    least: float
    arms: int = 1


def thresholds(efficiency: float | None, accuracy: float | None) -> list[Threshold]:
    """Those that are asked for.

    Raises:
        ValueError: one is no number above 0 and at most 1.
    """
    for name, least in (("efficiency", efficiency), ("accuracy", accuracy)):
        if least is not None and not 0 < least <= 1:
            raise ValueError(
                f"--min-{name}: found {least:g}, expected a number above 0 and at most 1, as 0.8"
            )
    asked = []
    if efficiency is not None:
        asked.append(Threshold("efficiency", "scaling", "efficiency", efficiency, arms=2))
    if accuracy is not None:
        asked.append(Threshold("accuracy", "convergence", "validation_accuracy", accuracy))
    return asked


def table(report: Report, asked: Sequence[Threshold]) -> Table:
    """A row per threshold and condition; of efficiency without the baselines, which are 1."""
    rows: list[Row] = []
    for one in asked:
        found = plain_rows(report.tables[one.table].data) if one.table in report.tables else []
        if one.what == "efficiency":
            found = [row for row in found if row["gpus"] != row["n0"]]
        rows += [_judged(row, one) for row in found]
        rows += [_unmeasured(row, one) for row in _without_runs(report.frames, one)]
    return Table("check", f"Thresholds of {report.name}", COLUMNS, frame(rows, COLUMNS))


def exit_code(found: Table) -> int:
    """1 where a condition failed, 3 where one is undecided or none is there, else 0."""
    verdicts = set(found.data["verdict"])
    return FAILED if "failed" in verdicts else PASSED if verdicts == {"passed"} else UNDECIDED


def sentences(found: Table) -> list[str]:
    """What failed, of each condition at its first rank count; what is undecided, by the reason; how
    many of each."""
    rows = plain_rows(found.data)
    if not rows:
        return ["Undecided: no condition can be judged, since nothing of the kind was measured."]
    several = len({row["gpus"] for row in rows}) > 1
    first: dict[Any, Row] = {}
    for row in sorted((row for row in rows if row["verdict"] == "failed"), key=_place):
        first.setdefault((row["what"], row["technique_label"], row["context"], row["mode"]), row)
    failed = [
        f"Failed: {_said(row)}"
        + (f"; {ranks_text(row['gpus'])}: the first count that fails." if several else ".")
        for row in first.values()
    ]
    reasons: dict[str, list[Row]] = {}
    for row in (row for row in rows if row["verdict"] == "undecided"):
        reasons.setdefault(row["why"], []).append(row)
    open_ = [
        f"Undecided: {_said(own[0])}{f' (and {len(own) - 1} more)' if own[1:] else ''}: {why}."
        for why, own in reasons.items()
    ]
    verdicts = list(found.data["verdict"])
    each = [f"{verdicts.count(one)} {one}" for one in VERDICTS if one in verdicts]
    return [*_some(failed), *_some(open_), f"{', '.join(each)} of {len(rows)}."]


def suites(found: Table, frames: Frames) -> list[Suite]:
    """For JUnit: a suite per threshold, a case per condition; error: undecided, so no pass."""
    rows = plain_rows(found.data)
    return [
        Suite(
            what,
            [Case(_name(row), _result(row)) for row in rows if row["what"] == what],
            f"{frames.name}.{what}",
            "check",
            began(frames),
        )
        for what in dict.fromkeys(row["what"] for row in rows)
    ]


def _judged(row: Row, threshold: Threshold) -> Row:
    found, least = estimate_in(row, threshold.column), threshold.least
    lost = round((row.get("diverged") or 0) * row["n"])
    verdict: Verdict = "undecided"
    if lost and lost == row["n"]:
        verdict, why = "failed", "every run diverged"
    elif found.low is None or found.high is None:
        further = "" if found.value is None else "further seeds would give an interval"
        why = joined([found.note or "", further], ": ") or "there is no value"
    elif found.high < least:
        verdict, why = "failed", "the whole interval is below the threshold"
    elif lost:
        why = (
            f"{lost} of {runs_in_words(row['n'])} diverged, so that the mean is that of the others"
        )
    elif found.low >= least:
        verdict, why = "passed", ""
    else:
        why = f"the interval holds the threshold; {_more(found, threshold)}"
    told = {**row, "mode": mode(row) if threshold.what == "efficiency" else ""}
    return _row(told, threshold, found, verdict, why)


def _unmeasured(row: Row, threshold: Threshold) -> Row:
    return _row({**row, "mode": ""}, threshold, Estimate(None), "undecided", NO_RUN)


def _row(about: Row, threshold: Threshold, found: Estimate, verdict: Verdict, why: str) -> Row:
    names = [column.name for column in COLUMNS[1:] if column.name in about]
    return {
        **{name: about[name] for name in names},
        **found.columns("value"),
        "what": threshold.what,
        "least": threshold.least,
        "verdict": verdict,
        "why": why,
    }


def _without_runs(frames: Frames, threshold: Threshold) -> list[Row]:
    """Planned conditions of which no run is usable; of efficiency those on more ranks than the
    fewest, which are measured against."""
    planned: pd.DataFrame = frames.planned
    lost = planned[~planned["condition"].isin(frames.runs["condition"]) & planned["known"]]
    if threshold.what == "efficiency":
        lost = lost[lost["gpus"] > planned["gpus"].min()]
    unknown = planned[~planned["known"]].assign(technique_label="cells of an unknown config")
    return [*plain_rows(lost.drop_duplicates("condition")), *plain_rows(unknown.head(1))]


def _more(found: Estimate, threshold: Threshold) -> str:
    """What would decide. The margin is declared, as everywhere: that of the observed value would
    only repeat its interval."""
    assert found.low is not None and found.high is not None, "a value without an interval"
    n = max(2, found.n // threshold.arms)
    half = (found.high - found.low) / 2
    if half <= MARGIN:
        return f"it is no wider than ± {MARGIN}, so that the value is at the threshold"
    runs = np.arange(n, MAX_RUNS)
    scale = half * np.sqrt(n) / t_quantile(threshold.arms * (n - 1))
    enough = runs[scale * t_quantile(threshold.arms * (runs - 1)) / np.sqrt(runs) <= MARGIN]
    if not len(enough):
        return "adding runs will not decide it"
    each = " of this and of the baseline each" if threshold.arms > 1 else ""
    return f"about {runs_in_words(int(enough[0]) - n)} more{each} would narrow it to ± {MARGIN}"


def _name(row: Row) -> str:
    place = "" if row["gpus"] is None else f" at {ranks_text(row['gpus'])}"
    batch = "" if row["global_batch"] is None else f", batch {count(row['global_batch'])}"
    under = f" ({row['mode']})" if row["mode"] else ""
    return f"{row['what']} of {with_context(row)}{under}{place}{batch}"


def _said(row: Row) -> str:
    found = estimate_in(row, "value")
    runs = f", {runs_in_words(found.n)}" if found.n else ""
    return f"{_name(row)}: {found.text(_THREE)}{runs}, threshold {row['least']:g}"


def _place(row: Row) -> tuple[int, int]:
    return row["gpus"], row["global_batch"]


def _some(said: Sequence[str]) -> Iterable[str]:
    more = [f"({len(said) - _NAMED} more in the table)"] if len(said) > _NAMED else []
    return [*said[:_NAMED], *more]


def _result(row: Row) -> Result | None:
    if row["verdict"] == "passed":
        return None
    text = f"{_said(row)}: {row['why']}"
    tag: Literal["failure", "error"] = "failure" if row["verdict"] == "failed" else "error"
    return Result(tag, row["verdict"], row["why"], text)
