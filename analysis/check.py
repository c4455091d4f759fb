"""Verdicts on a sweep: passed, failed or undecided, from 95 % intervals.

A table of verdicts has a row per condition, with ``what`` is judged, its ``verdict``, ``evidence``
and ``why``: that of the thresholds is made here, that against a baseline in comparisons/changes.py.
Of a threshold: passed: every planned run completed, and the whole interval is at or above it;
failed: all of it is below, or every run diverged; undecided: the rest, and a threshold without a
condition. Each interval stands by itself, so some err by chance (docs/statistics.md says how
often).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from analysis import fmt
from analysis.page.junit import began
from analysis.page.sections import parts
from analysis.records.columns import PLANNED
from analysis.records.frames import Frames
from analysis.stats.intervals import CUT
from analysis.table import Column, Estimate, Row, Table, estimate_in, frame, plain_rows, types
from analysis.topics.convergence.reached import conditions
from analysis.topics.names import NAMES, mode, ranks_text, with_context
from analysis.topics.scaling.efficiency import throughputs
from analysis.topics.scaling.series import SAME
from analysis.topics.topic import Sweep, groups
from analysis.writing import Case, Result, Suite

#: Verdict -> exit code, the one that decides first.
CODES = {"failed": 1, "undecided": 3, "passed": 0}
NO_RUN = "no usable run of a planned condition"
LOST = "not usable"
NOTHING = "nothing of the kind was measured"
#: A row of which nothing is known.
_OPEN = {"mode": "", "verdict": "undecided", **Estimate(None).columns("value")}
#: Conditions that are named in sentences of one verdict.
_NAMED = 5
COLUMNS: tuple[Column, ...] = (
    Column("what", "string", "what"),
    *NAMES,
    Column("mode", "string", "mode", only_if_varied=True),
    Column("gpus", "Int64", "ranks"),
    Column("n0", "Int64", "baseline", cell=lambda row: "" if row["n0"] is None else str(row["n0"])),
    Column("global_batch", "Int64", "global batch"),
    Column("value", "Float64", "value", format=fmt.THREE, estimate=True),
    Column("least", "Float64", "at least", format=lambda value: f"{value:g}"),
    Column("evidence", "string"),
    Column("verdict", "string", "verdict"),
    Column("why", "string", "why", wide=True),
)


def exit_code(tables: Sequence[Table]) -> int:
    """1 where a condition failed, 3 where one is undecided or there is none, else 0."""
    verdicts = {verdict for table in tables for verdict in table.data["verdict"]}
    return next((code for one, code in CODES.items() if one in verdicts), CODES["undecided"])


def sentences(found: Table) -> list[str]:
    """What failed, of each condition at its first rank count; what is undecided, by the reason; how
    many of each."""
    rows = plain_rows(found.data)
    failed, open_ = list[str](), list[str]()
    # where the mode says it, rows of one series differ in their batch, too
    series = [row | {"fixed": row.get("mode") or row["global_batch"]} for row in rows]
    for own in groups(series, ("what", "technique_label", "context", "fixed")):
        if lost := [row for row in own if row["verdict"] == "failed"]:
            lost.sort(key=lambda row: (row["gpus"], row["global_batch"]))
            first = f"; {ranks_text(lost[0]['gpus'])}: the first count that fails"
            failed.append(f"Failed: {_said(lost[0])}{first if own[1:] else ''}.")
    for own in groups([row for row in rows if row["verdict"] == "undecided"], ("why",)):
        more = f" (and {len(own) - 1} more)" if own[1:] else ""
        open_.append(f"Undecided: {_said(own[0])}{more}: {own[0]['why']}.")
    verdicts = Counter(row["verdict"] for row in rows)
    each = [f"{verdicts[one]} {one}" for one in ("passed", "failed", "undecided") if verdicts[one]]
    return [*failed[:_NAMED], *open_[:_NAMED], f"{', '.join(each)} of {len(rows)}."]


def suites(found: Table, frames: Frames) -> list[Suite]:
    """For JUnit: a suite for all that is judged in one way, a case per condition; error: undecided,
    so no pass."""
    return [
        Suite(what := rows[0]["what"], [Case(_name(row), _result(row)) for row in rows],
              f"{frames.name}.{what}", "check", began(frames))
        for rows in groups(plain_rows(found.data), ("what",))
    ]  # fmt: skip


def _name(row: Row) -> str:
    place = "" if row["gpus"] is None else f" at {ranks_text(row['gpus'])}"
    place += f" against {row['n0']}" if row.get("n0") not in (None, 1) else ""
    batch = "" if row["global_batch"] is None else f", batch {fmt.count(row['global_batch'])}"
    under = f" ({row['mode']})" if row.get("mode") else ""
    return f"{row['what']} of {with_context(row)}{under}{place}{batch}"


def _said(row: Row) -> str:
    return fmt.joined([_name(row), row["evidence"] or ""], ": ")


def _result(row: Row) -> Result | None:
    if row["verdict"] == "passed":
        return None
    tag: Literal["failure", "error"] = "failure" if row["verdict"] == "failed" else "error"
    return Result(tag, row["verdict"], row["why"], f"{_said(row)}: {row['why']}")


class Threshold(NamedTuple):
    """``column`` of a table, which ``make`` makes; ``alike``: of a config, what a row of the table
    must share with it, beside ranks and batch."""

    make: Callable[[Sweep], Table]
    column: str
    alike: tuple[str, ...]


_ALIKE = ("technique_label", *(name for name in SAME if name in types(PLANNED)))
THRESHOLDS = {
    "efficiency": Threshold(throughputs, "efficiency", _ALIKE),
    "accuracy": Threshold(conditions, "validation_accuracy", ("technique_label", "context")),
}


def table(frames: Frames, asked: Mapping[str, float]) -> Table:
    """A row per threshold and condition; of efficiency without the baselines, which are 1.

    Args:
        asked: of THRESHOLDS, the least value that passes.
    """
    of, rows = Sweep(frames), list[Row]()
    known = frames.planned["known"].all()
    unknown = [] if known else [{"technique_label": "cells of an unknown config", "why": NO_RUN}]
    for what, least in asked.items():
        planned, why = _planned(frames, what), list[str]()
        made = parts([THRESHOLDS[what].make] if len(of.runs) else [], of, "Its table", why)
        found = [row for table in made for row in plain_rows(table.data)]
        own = [_judged(row, what, least, planned) for row in found if row["gpus"] != row.get("n0")]
        own += [cells[0] | {"why": NO_RUN} for cells in planned.values()
                if {cell["status"] for cell in cells} == {LOST}]  # fmt: skip
        own += [*unknown, *({"technique_label": "every condition", "why": one} for one in why)]
        own = own or [{"technique_label": "every condition", "why": NOTHING}]
        rows += [_OPEN | row | {"what": what, "least": least} for row in own]
    for row in rows:
        value = estimate_in(row, "value")
        runs = f", {fmt.runs(value.n)}" if value.n else ""
        row["evidence"] = f"{value.text(fmt.THREE)}{runs}, threshold {row['least']:g}"
    return Table("check", f"Thresholds of {frames.name}", COLUMNS, frame(rows, COLUMNS))


def _planned(frames: Frames, what: str) -> dict[Any, list[Row]]:
    """The planned cells of each condition whose config is known, with the status of their runs: a
    mean of the others says nothing of those that are lost, whatever they were lost to."""
    status = frames.runs[["cell_id", "status"]]
    cells = frames.planned[frames.planned["known"]].merge(status, on="cell_id", how="left")
    found: dict[Any, list[Row]] = {}
    for row in plain_rows(cells.fillna({"status": LOST})):
        found.setdefault(_condition(row, what, row["gpus"]), []).append(row)
    return found


def _condition(row: Row, what: str, gpus: int | None) -> Any:
    """Of a row, or of its baseline, which has other ranks."""
    weak = what == "efficiency" and row["scaling"] == "weak"
    batch = row["batch_per_rank" if weak else "global_batch"]
    return (*(row[name] for name in THRESHOLDS[what].alike), batch, gpus)


def _judged(row: Row, what: str, least: float, planned: Mapping[Any, Sequence[Row]]) -> Row:
    verdict, found = "undecided", estimate_in(row, THRESHOLDS[what].column)
    ended = [
        Counter(cell["status"] for cell in planned[_condition(row, what, gpus)])
        for gpus in (row["gpus"], row.get("n0"))
        if gpus is not None
    ]
    here, both = ended[0], sum(ended, Counter[str]())
    lost = ", ".join(f"{both[one]} {one}" for one in ("diverged", LOST) if both[one])
    whose = " with those of its baseline" if ended[1:] else ""
    lost = lost and f"of {both.total()} planned runs{whose}: {lost}"
    if here.keys() == {"diverged"}:
        verdict, why = "failed", "every run diverged"
    elif found.low is None or found.high is None:
        why = lost or found.note or "there is no value"
    elif found.high < least:
        verdict, why = "failed", "the whole interval is below the threshold"
    elif found.low < least:
        why = lost or "the threshold lies in the interval"
    elif not (why := lost or _doubt(found, least)):
        verdict = "passed"
    how = mode(row) if what == "efficiency" else ""
    return row | found.columns("value") | {"mode": how, "verdict": verdict, "why": why}


def _doubt(found: Estimate, least: float) -> str:
    """An interval that is cut at 1 covers less: it passes where it would at twice its width."""
    twice = 2 * (found.low or 0) - (found.value or 0)
    return "" if found.note == CUT.format(1) and twice >= least else found.note or ""
