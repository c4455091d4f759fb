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
    for what, least in asked.items():
        threshold, why = THRESHOLDS[what], list[str]()
        plan = _Plan(frames, what)
        made = parts([threshold.make] if len(of.runs) else [], of, "Its table", why)
        found = [row for table in made for row in plain_rows(table.data)]
        own = [_judged(row, what, least, plan) for row in found if not plan.is_baseline(row)]
        own += [row | {"why": NO_RUN} for row in plan.without_runs()]
        if why or not own:
            own += [{"technique_label": "every condition", "why": one} for one in why or [NOTHING]]
        rows += [_OPEN | row | {"what": what, "least": least} for row in own]
    for row in rows:
        value = estimate_in(row, "value")
        runs = f", {fmt.runs(value.n)}" if value.n else ""
        row["evidence"] = f"{value.text(fmt.THREE)}{runs}, threshold {row['least']:g}"
    return Table("check", f"Thresholds of {frames.name}", COLUMNS, frame(rows, COLUMNS))


class _Plan:
    """What was planned against what completed, per condition: a mean of the other runs says nothing
    of those that are lost, whatever they were lost to."""

    def __init__(self, frames: Frames, what: str) -> None:
        self._alike, self._is_efficiency = THRESHOLDS[what].alike, what == "efficiency"
        known = frames.planned["known"]
        self._unknown = int((~known).sum())
        status = frames.runs[["cell_id", "status"]]
        cells = frames.planned[known].merge(status, on="cell_id", how="left")
        #: Of each condition without its ranks, and rank count: the planned cells.
        self._cells: dict[Any, dict[int, list[Row]]] = {}
        for row in plain_rows(cells.fillna({"status": "not usable"})):
            by_ranks = self._cells.setdefault(self._key(row), {})
            by_ranks.setdefault(row["gpus"], []).append(row)

    def _key(self, row: Row) -> Any:
        """Of a condition without its ranks: of efficiency what one rank count is measured against
        another in."""
        weak = self._is_efficiency and row["scaling"] == "weak"
        batch = row["batch_per_rank" if weak else "global_batch"]
        return (*(row[name] for name in self._alike), batch)

    def _first(self, row: Row) -> int:
        return min(self._cells[self._key(row)])

    def _lost(self, row: Row, gpus: Any) -> Counter[str]:
        """How many planned cells ended how."""
        return Counter(cell["status"] for cell in self._cells[self._key(row)].get(gpus, ()))

    def is_baseline(self, row: Row) -> bool:
        """Of efficiency: the count that the plan begins with, whose efficiency is 1."""
        gpus = row["gpus"]
        return self._is_efficiency and gpus == row.get("n0", gpus) == self._first(row)

    def all_diverged(self, row: Row) -> bool:
        return set(self._lost(row, row["gpus"])) == {"diverged"}

    def doubt(self, row: Row) -> str:
        """Why the runs of a row, or of its baseline, are not those of the plan; else empty."""
        n0 = row.get("n0")
        if n0 is not None and n0 != (first := self._first(row)):
            return f"measured against {ranks_text(n0)}, while the plan begins at {first}"
        for gpus, of in ((row["gpus"], "planned runs"), (n0, "planned runs of the baseline")):
            came_to = self._lost(row, gpus)
            lost = [f"{came_to[why]} {why}" for why in ("diverged", "not usable") if came_to[why]]
            if lost:
                return f"of {came_to.total()} {of}: {fmt.joined(lost, ', ')}"
        return ""

    def without_runs(self) -> list[Row]:
        """Planned conditions of which no run is usable, without the baselines of efficiency."""
        every = [cells for by_ranks in self._cells.values() for cells in by_ranks.values()]
        lost = [cells[0] for cells in every if {cell["status"] for cell in cells} == {"not usable"}]
        rows = [row for row in lost if not self.is_baseline(row)]
        unknown: Row = {"technique_label": "cells of an unknown config"}
        return [*rows, unknown] if self._unknown else rows


def _judged(row: Row, what: str, least: float, plan: _Plan) -> Row:
    verdict, found = "undecided", estimate_in(row, THRESHOLDS[what].column)
    if plan.all_diverged(row):
        verdict, why = "failed", "every run diverged"
    elif found.low is None or found.high is None:
        why = plan.doubt(row) or found.note or "there is no value"
    elif found.high < least:
        verdict, why = "failed", "the whole interval is below the threshold"
    elif found.low < least:
        why = plan.doubt(row) or "the threshold lies in the interval"
    elif not (why := plan.doubt(row) or _doubt(found, least)):
        verdict = "passed"
    how = mode(row) if what == "efficiency" else ""
    return row | found.columns("value") | {"mode": how, "verdict": verdict, "why": why}


def _doubt(found: Estimate, least: float) -> str:
    """An interval that is cut at 1 covers less: it passes where it would at twice its width."""
    twice = 2 * (found.low or 0) - (found.value or 0)
    return "" if found.note == CUT.format(1) and twice >= least else found.note or ""
