"""What a setting that a sweep varies does: accuracy, and sharpness where it was measured.

Ranks, batch, technique, library and learning rate have topics of their own. Any other setting that
differs between cells of one technique is an axis here, and the batch, too, where sharpness was
measured. Its values are compared where all else is equal; a setting that follows from another one
(epochs from the share of the data) is named, and no axis. The last value of the plan is compared
with its first, numbers in their order: where one of the two has no usable run, nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.plots.figure import DASHES, GREY, INK, MARKERS, Figure, Look, n_of
from analysis.plots.lines import Axis, Line, lines
from analysis.stats.differences import differences, ratios
from analysis.stats.intervals import Moments, grouped_moments, t_intervals
from analysis.table import Column, Row, Table, estimate_in, estimates_as, frame, plain_rows
from analysis.topics.comparisons.arms import SOME_DIVERGED, STOPS, numbers
from analysis.topics.names import ratio_text
from analysis.topics.settings import OneSetting, one_at_a_time, value_text
from analysis.topics.topic import Answer, Sweep, Topic, groups

Writer: TypeAlias = Callable[[Any], str]
_MOST = 3
_FOUND = ("status", "validation_accuracy", "sharpness_largest")
#: Estimate of the last value against the first -> its words, how it is written, no change; of
#: which column, and how that is written.
_MEASURES: dict[str, tuple[str, Writer, float, str, Writer]] = {
    "times": ("the largest eigenvalue of the Hessian", fmt.significant, 1,
              "sharpness", fmt.significant),
    "change": ("validation accuracy", fmt.SIGNED, 0, "accuracy", fmt.THREE),
}  # fmt: skip
COLUMNS: tuple[Column, ...] = (
    Column("axis", "string", "setting", "and what follows from it, which differs, too",
           cell=lambda row: fmt.joined([row["axis"], row["too"]], ", ")),
    Column("too", "string"),
    Column("equal", "string", "with", "what else differs in the sweep", only_if_varied=True),
    Column("value", "string", "value"),
    Column("at", "Float64"),
    Column("n", "Int64", "runs", "completed"),
    Column("diverged", "Int64", "diverged", "runs that are in no mean", only_if_varied=True),
    Column("accuracy", "Float64", "validation accuracy", "mean over completed runs, with the 95 % "
           "t interval", format=fmt.THREE, estimate=True),
    Column("change", "Float64", "against the first value", "difference of means, with Welch's 95 "
           "% interval, without correction for several values", format=fmt.SIGNED,
           estimate=True),
    Column("sharpness", "Float64", "sharpness", "largest eigenvalue of the Hessian where a run "
           "ended, geometric mean", format=fmt.significant, estimate=True),
    Column("times", "Float64", "times the first value's", "ratio of geometric means, with its 95 % "
           "interval", format=ratio_text, estimate=True),
)  # fmt: skip


def table(of: Sweep) -> Table:
    """A row per axis, set of cells that differ in it alone, and value."""
    planned, found = of.frames.planned, of.runs[["cell_id", *_FOUND]]
    cells = planned[planned["known"]].merge(found, on="cell_id", how="left")
    rows: list[Row] = []
    measured = bool(cells["sharpness_largest"].notna().any())
    for one in one_at_a_time(cells, of.frames.settings, batch=measured):
        rows += _rows(one, cells.loc[one.values.index])
    shown = [c for c in COLUMNS if measured or c.name not in ("sharpness", "times")]
    return Table("axes", "What each setting does", tuple(shown), frame(rows, COLUMNS))


def answers(of: Sweep) -> Iterable[Answer]:
    """One per axis: what changes from its first value to its last."""
    rows = of.rows(table)
    told = {row["axis"] for row in rows if row["change_note"] != STOPS or row["times"] is not None}
    axes = groups([row for row in rows if row["axis"] in told], ("axis",))[:_MOST]
    every = [groups(own, ("equal",)) for own in axes]
    last_rows = [own[-1] for sets in every for own in sets]
    compared = sum(row[f"{name}_low"] is not None for row in last_rows for name in _MEASURES)
    for sets in every:
        verdict, *more = fmt.few([_said(own) for own in sets])
        if compared > 1 and any(own[-1][f"{n}_low"] is not None for own in sets for n in _MEASURES):
            more.append(f"intervals are not corrected for {compared} comparisons")
        yield Answer("axis", f"What changes with {sets[0][0]['axis']}?", fmt.sentence(verdict),
                     "axes", "runs", more)  # fmt: skip


def figure(of: Sweep) -> Figure | None:
    """Accuracy, or sharpness, against the first axis of numbers."""
    data = of.made(table).data
    numeric = data[data["at"].notna() & (data["n"] > 0)]
    if numeric.empty:
        return None
    axis = numeric["axis"].iloc[0]
    own = numeric[numeric["axis"] == axis]
    name = "sharpness" if own["sharpness"].notna().all() else "accuracy"
    wide = own["at"].max() >= 4 * own["at"].min() > 0
    x = Axis(str(axis), "octaves" if wide else "values")
    y = Axis("validation accuracy")
    if name == "sharpness":
        y = Axis("largest eigenvalue of the Hessian", "decades")
    sets = {str(equal): rows for equal, rows in own.groupby("equal", sort=False)}
    # no colour of a technique, which other figures of the page have
    seen = {
        equal: Look((INK, GREY)[i % 2], MARKERS[i % len(MARKERS)], DASHES[i // 2 % len(DASHES)])
        for i, equal in enumerate(sets)
    }
    drawn = [
        Line(rows["at"], rows[name], seen[equal], equal, rows[f"{name}_low"], rows[f"{name}_high"],
             bars=True)
        for equal, rows in sets.items()
    ]  # fmt: skip
    caption = f"Means of completed runs with 95 % intervals, {n_of(own['n'])}."
    caption += "".join(f" With the {axis}, {too} changes." for too in own["too"].unique() if too)
    return Figure("axes", f"{fmt.capital(y.label)} against {axis}", caption, own,
                  lines({"": drawn}, x, y))  # fmt: skip


def _rows(one: OneSetting, cells: pd.DataFrame) -> list[Row]:
    """Of its cells, with what their runs gave, a row per value; numbers in their order."""
    order = list(dict.fromkeys(one.values))
    numeric = all(isinstance(v, Real) and not isinstance(v, (bool, np.bool_)) for v in order)
    order = sorted(order) if numeric else order
    place = one.values.map({value: at for at, value in enumerate(order)}).to_numpy(int)
    size = len(order)
    done = cells["status"].eq("completed").fillna(False).to_numpy(bool)
    diverged = cells["status"].notna().to_numpy(bool) & ~done
    sharp = cells["sharpness_largest"].where(done & (cells["sharpness_largest"] > 0).fillna(False))
    accuracy = grouped_moments(numbers(cells["validation_accuracy"].where(done)), place, size)
    sharpness = grouped_moments(np.log(numbers(sharp)), place, size)
    change, times = _against_first(differences, accuracy), _against_first(ratios, sharpness)
    # a run that ends at a target has epochs of its own; where some diverged, means are of the rest
    unknown = {"value": np.nan, "low": np.nan, "high": np.nan}
    if diverged.any():
        change, times = (found.assign(**unknown, note=SOME_DIVERGED) for found in (change, times))
    elif cells["target"].notna().any():
        change = change.assign(**unknown, note=STOPS)
    return plain_rows(pd.DataFrame({
        "axis": one.axis, "too": one.too, "equal": one.equal,
        "value": [value_text(v) for v in order],
        "at": order if numeric else [None] * size, "n": np.bincount(place[done], minlength=size),
        "diverged": np.bincount(place[diverged], minlength=size),
        **estimates_as("accuracy", t_intervals(accuracy, "share")),
        **estimates_as("change", change),
        **estimates_as("sharpness", t_intervals(sharpness, "positive")),
        **estimates_as("times", times),
    }))  # fmt: skip


def _against_first(
    compare: Callable[[Moments, Moments], pd.DataFrame], values: Moments
) -> pd.DataFrame:
    """Each value against the first one, which has no difference from itself."""
    found = compare(values, values.at(np.zeros(len(values.n), int)))
    found.loc[0, ["value", "low", "high", "note"]] = None
    return found


def _said(rows: Sequence[Row]) -> str:
    """What one set of cells shows."""
    first, last = rows[0], rows[-1]
    ends = f"from {first['axis']} {first['value']} to {last['value']}"
    ends += f" (with {first['too']} changing)" if first["too"] else ""
    equal = f"with {last['equal']}" if last["equal"] else ""
    changes = [_change(name, first, last) for name in _MEASURES if last[name] is not None]
    runs = f"{first['n']} + {fmt.runs(last['n'])}"
    text = [*changes, runs] if changes else [f"no change is claimed: {last['change_note']}"]
    more = f"{fmt.counted(len(rows) - 2, 'more value')} in the table" if len(rows) > 2 else ""
    return fmt.joined([fmt.joined([ends, equal, *text], ", "), more], "; ")


def _change(name: str, first: Row, last: Row) -> str:
    what, write, same, of, level = _MEASURES[name]
    found = estimate_in(last, name)
    by = f"by {'a factor of ' if same else ''}{found.text(write)}"
    change = f"from {level(first[of])} to {level(last[of])}, {by}"
    if found.low is None or found.high is None or found.low <= same <= found.high:
        return f"no change of {what} is shown: {change}"
    return f"{what} changes {change}"


TOPIC = Topic((table,), (figure,), (answers,), asks=lambda of: len(of.made(table).data) > 0)
