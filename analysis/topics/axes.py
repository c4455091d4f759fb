"""What a setting that a sweep varies does: accuracy, and sharpness where it was measured.

Ranks, batch, technique, library and learning rate have topics of their own. Any other setting that
differs between cells of one technique is an axis here, and the batch, too, where sharpness was
measured. Its values are compared where all else is equal; a setting that follows from another one
(epochs from the share of the data) is named, and no axis. Each value of the plan is compared with
the first, numbers in their order; all these comparisons are one family. Sentences have the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.plots.figure import DASHES, GREY, INK, MARKERS, Figure, Look, n_of
from analysis.plots.lines import Axis, Line, lines
from analysis.stats.intervals import grouped_moments, t_intervals
from analysis.table import Column, Row, Table, estimates_as, frame
from analysis.topics.comparisons.arms import STOPS, numbers
from analysis.topics.comparisons.claim import Claim, sentences, told
from analysis.topics.comparisons.contrast import (
    HIGHER,
    LOWER,
    NOT_COMPARED,
    UNDECIDED,
    UNTESTED,
    Contrast,
    Pairs,
    contrasts,
    only,
)
from analysis.topics.names import ratio_text
from analysis.topics.settings import SHARE, OneSetting, one_at_a_time, value_text
from analysis.topics.topic import Answer, Rows, Sweep, Topic, groups

_FOUND = ("status", "validation_accuracy", "sharpness_largest")
_CHANGE = Contrast("change", "against the first value", fmt.SIGNED, "difference of means",
                   tests="change_", shows=False)  # fmt: skip
_TIMES = Contrast("times", "times the first value's", ratio_text, "ratio of geometric means",
                  ratio=True, tests="times_", shows=False)  # fmt: skip
_NAMES = {_TIMES: "the largest eigenvalue of the Hessian", _CHANGE: "accuracy"}
#: How a sentence says a result, and of what.
_VERBS = {
    result: (f"{verb} {{}}", "")
    for result, verb in {HIGHER: "rises", LOWER: "falls", UNDECIDED: "is not shown to change",
                         UNTESTED: "is untested", NOT_COMPARED: "is not compared"}.items()
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
    *_CHANGE.columns,
    Column("sharpness", "Float64", "sharpness", "largest eigenvalue of the Hessian where a run "
           "ended, geometric mean", format=fmt.significant, estimate=True),
    *_TIMES.columns,
    Column("n_planned", "Int64"),
    Column("n_first", "Int64"),
    Column("n_planned_first", "Int64"),
    Column("family", "Int64", description="comparisons with a first value that are planned"),
)  # fmt: skip


def table(of: Sweep) -> Table:
    """A row per axis, set of cells that differ in it alone, and value."""
    planned, found = of.frames.planned, of.runs[["cell_id", *_FOUND]]
    cells = planned[planned["known"]].merge(found, on="cell_id", how="left")
    measured = bool(cells["sharpness_largest"].notna().any())
    sets = [_values(one) for one in one_at_a_time(cells, of.frames.settings, batch=measured)]
    shown = [c for c in COLUMNS if measured or not c.name.startswith(("sharpness", "times"))]
    rows = _rows(sets, cells, measured=measured) if sets else {}
    return Table("axes", "What each setting does", tuple(shown), frame(rows, COLUMNS))


def answers(of: Sweep) -> Iterable[Answer]:
    """One per axis: what changes from its first value to its last."""
    rows = of.rows(table)
    asked = _asked(of)
    found = []
    for own in groups(rows, ("axis",)):
        said = [_said(one, asked) for one in groups(own, ("equal",))]
        if any(said):
            verdict, *more = fmt.few([*filter(None, said)])
            found.append((f"What changes with {own[0]['axis']}?", verdict, more))
    yield from told("axis", "axes", "runs", found)


def _asked(of: Sweep) -> list[Contrast]:
    measured = of.made(table).data["sharpness"].notna().any()
    return [_TIMES, _CHANGE] if measured else [_CHANGE]


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


def _values(one: OneSetting) -> tuple[list[Row], pd.Series[Any]]:
    """A row per value, numbers in their order; and the place of each cell's value among them."""
    order = list(dict.fromkeys(one.values))
    numeric = all(isinstance(v, Real) and not isinstance(v, (bool, np.bool_)) for v in order)
    order = sorted(order) if numeric else order
    about = {"axis": one.axis, "too": one.too, "equal": one.equal}
    rows = [about | {"value": value_text(value), "at": value if numeric else None}
            for value in order]  # fmt: skip
    return rows, one.values.map({value: at for at, value in enumerate(order)})


def _rows(
    sets: Sequence[tuple[list[Row], pd.Series[Any]]], cells: pd.DataFrame, *, measured: bool
) -> dict[str, Any]:
    """Columns of the table. ``measured``: the sharpness of some run is."""
    starts = np.cumsum([0, *(len(rows) for rows, _ in sets)])[:-1]
    about = pd.DataFrame([row for rows, _ in sets for row in rows])
    first = np.repeat(starts, [len(rows) for rows, _ in sets])
    places = [own + at for at, (_, own) in zip(starts, sets, strict=True)]
    place = np.concatenate([own.to_numpy(int) for own in places])
    cells = cells.loc[np.concatenate([own.index for own in places])]
    size = len(about)
    done = cells["status"].eq("completed").fillna(False).to_numpy(bool)
    lost = cells["status"].notna().to_numpy(bool) & ~done
    n, planned, diverged = (np.bincount(own, minlength=size)
                            for own in (place[done], place, place[lost]))  # fmt: skip
    stops = np.bincount(place[cells["target"].notna()], minlength=size) > 0
    accuracy = grouped_moments(numbers(cells["validation_accuracy"].where(done)), place, size)
    sharp = cells["sharpness_largest"].where(done & (cells["sharpness_largest"] > 0).fillna(False))
    sharpness = grouped_moments(np.log(numbers(sharp)), place, size)
    # a run that ends at a target has epochs of its own; where some diverged, means are of the rest
    later = np.flatnonzero(np.arange(size) != first)
    some, ends = (own[later] | own[first[later]] for own in (diverged > 0, stops))
    asked = {}
    compared = ((_TIMES, sharpness), (_CHANGE, only(accuracy, ~stops)))
    for one, found in compared[not measured :]:
        why = np.select([some, ends & (one is _CHANGE)], ["some runs diverged", STOPS], "")
        of_first = found.at(first[later])
        asked[one] = Pairs(found.at(later), of_first, [w or None for w in why], [None] * len(why))
    answers = pd.DataFrame(contrasts(asked), later).reindex(range(size))
    return {
        **{str(name): about[name].array for name in about},
        "n": n, "diverged": diverged, "n_planned": planned,
        "n_first": n[first], "n_planned_first": planned[first],
        **estimates_as("accuracy", t_intervals(accuracy, "share")),
        **estimates_as("sharpness", t_intervals(sharpness, "positive")),
        **{str(name): answers[name].array for name in answers},
        "family": np.full(size, len(asked) * len(later)),
    }  # fmt: skip


def _said(rows: Rows, asked: Sequence[Contrast]) -> str:
    """What one set of cells shows; empty where a target ends its runs."""
    first, last = rows[0], rows[-1]
    ends = f"from {first['axis']} {first['value']} to {last['value']}"
    if first["axis"] == SHARE:
        low, high = (fmt.significant(100 * row["at"], 2) for row in (first, last))
        ends = f"from {low} % to {high} % of the training images"
    ends += f" with {last['equal']}" if last["equal"] else ""
    claims = [Claim.of(last, one, _NAMES[one], "", "", "_first") for one in asked]
    known = [one for one in claims if one.why != STOPS]
    changes = [sentences([one], _VERBS, "" if at else ends)[0] for at, one in enumerate(known)]
    too = f"what else changes: {first['too']}" if first["too"] else ""
    more = f"{fmt.counted(len(rows) - 2, 'more value')} in the table" if rows[2:] else ""
    return fmt.joined([*changes, too, more], "; ") if changes else ""


TOPIC = Topic((table,), (figure,), (answers,), asks=lambda of: len(of.made(table).data) > 0)
