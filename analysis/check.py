"""Does a sweep meet its thresholds? Each condition is judged by its 95 % interval.

passed: every planned run completed, and the whole interval is at or above the threshold; failed:
all of it is below, or every run diverged; undecided: the rest, and a threshold without a condition.
Each interval stands by itself, so some err by chance (docs/statistics.md says how often).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from analysis.page.junit import began
from analysis.page.sections import parts
from analysis.records.columns import PLANNED
from analysis.records.frames import Frames
from analysis.stats.intervals import CUT, ONE_RUN, t_quantile
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
    types,
)
from analysis.topics.convergence.reached import conditions
from analysis.topics.names import NAMES, mode, ranks_text, with_context
from analysis.topics.scaling.efficiency import throughputs
from analysis.topics.scaling.series import SAME
from analysis.topics.topic import Sweep, counted, groups
from analysis.writing import Case, Result, Suite

VERDICTS = ("passed", "failed", "undecided")
PASSED, FAILED, UNDECIDED = 0, 1, 3
NO_RUN = "no usable run of a planned condition"
NOTHING = "nothing of the kind was measured"
_THREE = number(3)
_NO_VALUE = Estimate(None)
#: Conditions that are named in sentences of one verdict.
_NAMED = 5
#: Of a config, what a row of the table must share with it, beside ranks and batch.
_ALIKE = {
    "efficiency": ("technique_label", *(name for name in SAME if name in types(PLANNED))),
    "accuracy": ("technique_label", "context"),
}
COLUMNS: tuple[Column, ...] = (
    Column("what", "string", "what"),
    *NAMES,
    Column("mode", "string", "mode", only_if_varied=True),
    Column("gpus", "Int64", "ranks"),
    Column("n0", "Int64", "baseline", cell=lambda row: "" if row["n0"] is None else str(row["n0"])),
    Column("global_batch", "Int64", "global batch"),
    Column("value", "Float64", "value", format=_THREE, estimate=True),
    Column("least", "Float64", "at least", format=lambda value: f"{value:g}"),
    Column("verdict", "string", "verdict"),
    Column("why", "string", "why", wide=True),
)


@dataclass(frozen=True)
class Threshold:
    """``least`` of ``column`` in a table; ``arms``: sets of runs that an interval is made from."""

    what: str
    make: Callable[[Sweep], Table]
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
        asked.append(Threshold("efficiency", throughputs, "efficiency", efficiency, arms=2))
    if accuracy is not None:
        asked.append(Threshold("accuracy", conditions, "validation_accuracy", accuracy))
    return asked


def table(frames: Frames, asked: Sequence[Threshold]) -> Table:
    """A row per threshold and condition; of efficiency without the baselines, which are 1."""
    of, rows = Sweep(frames), list[Row]()
    for one in asked:
        plan, why = _Plan(frames, one.what), list[str]()
        made = parts([one.make] if len(of.runs) else [], of, "Its table", why)
        found = [row for table in made for row in plain_rows(table.data)]
        own = [_judged(row, one, plan) for row in found if not plan.is_baseline(row)]
        own += [_row(row, one, NO_RUN) for row in plan.without_runs()]
        every: Row = {"technique_label": "every condition"}
        rows += own + [_row(every, one, text) for text in why or ([] if own else [NOTHING])]
    return Table("check", f"Thresholds of {frames.name}", COLUMNS, frame(rows, COLUMNS))


def exit_code(found: Table) -> int:
    """1 where a condition failed, 3 where one is undecided, else 0."""
    verdicts = set(found.data["verdict"])
    return FAILED if "failed" in verdicts else PASSED if verdicts == {"passed"} else UNDECIDED


def sentences(found: Table) -> list[str]:
    """What failed, of each condition at its first rank count; what is undecided, by the reason; how
    many of each."""
    rows = plain_rows(found.data)
    failed, open_ = list[str](), list[str]()
    # where the mode says it, rows of one series differ in their batch, too
    series = [row | {"fixed": row["mode"] or row["global_batch"]} for row in rows]
    for own in groups(series, ("what", "technique_label", "context", "fixed")):
        if lost := [row for row in own if row["verdict"] == "failed"]:
            lost.sort(key=lambda row: (row["gpus"], row["global_batch"]))
            first = f"; {ranks_text(lost[0]['gpus'])}: the first count that fails"
            failed.append(f"Failed: {_said(lost[0])}{first if own[1:] else ''}.")
    for own in groups([row for row in rows if row["verdict"] == "undecided"], ("why",)):
        more = f" (and {len(own) - 1} more)" if own[1:] else ""
        open_.append(f"Undecided: {_said(own[0])}{more}: {own[0]['why']}.")
    verdicts = list(found.data["verdict"])
    each = [f"{verdicts.count(one)} {one}" for one in VERDICTS if one in verdicts]
    return [*_some(failed), *_some(open_), f"{', '.join(each)} of {len(rows)}."]


def suites(found: Table, frames: Frames) -> list[Suite]:
    """For JUnit: a suite per threshold, a case per condition; error: undecided, so no pass."""
    return [
        Suite(what := rows[0]["what"], [Case(_name(row), _result(row)) for row in rows],
              f"{frames.name}.{what}", "check", began(frames))
        for rows in groups(plain_rows(found.data), ("what",))
    ]  # fmt: skip


class _Plan:
    """What was planned against what completed, per condition: a mean of the other runs says nothing
    of those that are lost, whatever they were lost to."""

    def __init__(self, frames: Frames, what: str) -> None:
        self._what, self._planned, self._runs = what, frames.planned, frames.runs
        status = dict(zip(frames.runs["cell_id"], frames.runs["status"], strict=True))
        self._came_to: dict[Any, Counter[str]] = {}
        self._first: dict[Any, int] = {}
        for row in plain_rows(frames.planned[frames.planned["known"]]):
            key, gpus = self._key(row), row["gpus"]
            self._first[key] = min(gpus, self._first.get(key, gpus))
            came_to = status.get(row["cell_id"], "not usable")
            self._came_to.setdefault((key, gpus), Counter())[came_to] += 1

    def _key(self, row: Row) -> Any:
        """Of a condition without its ranks: of efficiency what one rank count is measured against
        another in."""
        weak = self._what == "efficiency" and row["scaling"] == "weak"
        batch = row["batch_per_rank" if weak else "global_batch"]
        return (*(row[name] for name in _ALIKE[self._what]), batch)

    def is_baseline(self, row: Row) -> bool:
        """Of efficiency: the count that the plan begins with, whose efficiency is 1."""
        return row["gpus"] == row.get("n0") == self._first[self._key(row)]

    def all_diverged(self, row: Row) -> bool:
        return set(self._came_to[self._key(row), row["gpus"]]) == {"diverged"}

    def doubt(self, row: Row) -> str:
        """Why the runs of a row, or of its baseline, are not those of the plan; else empty."""
        key, n0 = self._key(row), row.get("n0")
        if n0 is not None and n0 != self._first[key]:
            return f"measured against {ranks_text(n0)}, while the plan begins at {self._first[key]}"
        for gpus, of in ((row["gpus"], "planned runs"), (n0, "planned runs of the baseline")):
            came_to = self._came_to.get((key, gpus), Counter())
            lost = [f"{came_to[why]} {why}" for why in ("diverged", "not usable") if came_to[why]]
            if lost:
                return f"of {came_to.total()} {of}: {joined(lost, ', ')}"
        return ""

    def without_runs(self) -> list[Row]:
        """Planned conditions of which no run is usable, without the baselines of efficiency."""
        planned = self._planned
        lost = planned[~planned["condition"].isin(self._runs["condition"]) & planned["known"]]
        rows = plain_rows(lost.drop_duplicates("condition"))
        if self._what == "efficiency":
            rows = [row for row in rows if row["gpus"] > self._first[self._key(row)]]
        unknown = planned[~planned["known"]].assign(technique_label="cells of an unknown config")
        return [*rows, *plain_rows(unknown.head(1))]


def _judged(row: Row, threshold: Threshold, plan: _Plan) -> Row:
    found, least, verdict = estimate_in(row, threshold.column), threshold.least, "undecided"
    if plan.all_diverged(row):
        verdict, why = "failed", "every run diverged"
    elif found.low is None or found.high is None:
        further = "further seeds would give an interval" if found.note == ONE_RUN else ""
        why = plan.doubt(row) or joined([found.note or "", further], ": ") or "there is no value"
    elif found.high < least:
        verdict, why = "failed", "the whole interval is below the threshold"
    elif found.low < least:
        why = plan.doubt(row) or f"the threshold lies in the interval; {_more(found, threshold)}"
    elif not (why := plan.doubt(row) or _doubt(found, least)):
        verdict = "passed"
    how = mode(row) if threshold.what == "efficiency" else ""
    return _row(row | {"mode": how}, threshold, why, verdict, found)


def _doubt(found: Estimate, least: float) -> str:
    """An interval that is cut at 1 covers less: it passes where it would at twice its width."""
    twice = 2 * (found.low or 0) - (found.value or 0)
    return "" if found.note == CUT.format(1) and twice >= least else found.note or ""


def _row(
    about: Row, threshold: Threshold, why: str, verdict: str = "undecided",
    found: Estimate = _NO_VALUE,
) -> Row:  # fmt: skip
    judged = {"what": threshold.what, "least": threshold.least, "verdict": verdict, "why": why}
    return {"mode": ""} | about | found.columns("value") | judged


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
    return f"about {counted(int(enough[0]) - n, 'more run')}{each} would narrow it to ± {MARGIN}"


def _name(row: Row) -> str:
    place = "" if row["gpus"] is None else f" at {ranks_text(row['gpus'])}"
    place += "" if row["n0"] in (None, 1) else f" against {row['n0']}"
    batch = "" if row["global_batch"] is None else f", batch {count(row['global_batch'])}"
    under = f" ({row['mode']})" if row["mode"] else ""
    return f"{row['what']} of {with_context(row)}{under}{place}{batch}"


def _said(row: Row) -> str:
    found = estimate_in(row, "value")
    runs = f", {runs_in_words(found.n)}" if found.n else ""
    return f"{_name(row)}: {found.text(_THREE)}{runs}, threshold {row['least']:g}"


def _some(said: list[str]) -> list[str]:
    more = [f"({len(said) - _NAMED} more in the table)"] if len(said) > _NAMED else []
    return [*said[:_NAMED], *more]


def _result(row: Row) -> Result | None:
    if row["verdict"] == "passed":
        return None
    text = f"{_said(row)}: {row['why']}"
    tag: Literal["failure", "error"] = "failure" if row["verdict"] == "failed" else "error"
    return Result(tag, row["verdict"], row["why"], text)
