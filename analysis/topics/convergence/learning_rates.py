"""Accuracy against the learning rate, where a technique was run at several: a search.

What is compared differs in ``base_lr`` alone. The range that was searched is that of the plan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.plots.figure import Figure, left_out, looks
from analysis.plots.lines import Axis, Line, lines
from analysis.records.frames import in_order
from analysis.records.labels import without_rates
from analysis.stats.differences import welch
from analysis.table import Column, Table, estimate_in, estimates_as, frame, plain_rows
from analysis.topics.comparisons.arms import (
    ABOUT,
    PLACE,
    accuracies,
    accuracy_moments,
    arms,
    outcomes,
    runs_text,
)
from analysis.topics.names import place_namer
from analysis.topics.topic import Sweep, Topic

KEY = "accuracy_by_rate"
#: Rates of one technique and batch; two have no middle that could be better than both.
LEAST_RATES = 3
MOST_LINES = 12
LOWEST = "the lowest rate with usable runs: a lower one may be better"
HIGHEST = "the highest rate with usable runs: a higher one may be better"
COLUMNS = (
    *ABOUT,
    Column("line", "Int64"),
    Column("base_lr", heading="rate", format=lambda rate: f"{rate:g}",
           description="base_lr: of the base batch; the technique's own rule scales it"),
    Column("accuracy", estimate=True, heading="accuracy", format=fmt.THREE,
           description="mean among runs that did not diverge, with Student's t interval"),
    Column("n", "Int64", heading="runs", cell=runs_text,
           description="usable runs, diverged ones included"),
    Column("n_planned", "Int64"),
    Column("n_diverged", "Int64", heading="diverged", only_if_varied=True,
           description="of the usable runs"),
    Column("best", "boolean", heading="best", note="best_note",
           cell=lambda row: "best" if row["best"] else "tied" if row["tied"] else "",
           description="highest mean among the rates of which no run diverged; tied: not shown to "
           "differ from it"),
    Column("best_note", "string"),
    Column("tied", "boolean",
           description="not shown to differ from the best: 0 is in Welch's 95 % interval of the "
           "difference, of this row alone; null where there is none"),
)  # fmt: skip


def tried(of: Sweep) -> Table:
    """One row per rate of each technique and scale with LEAST_RATES planned rates or more."""
    found = _searched(of)
    rows = {
        **{str(name): found[name] for name in found},
        **estimates_as("accuracy", accuracies(found)),
    }
    made = _with_best(frame(rows, COLUMNS))
    made = in_order(made.assign(tied=_tied(found, made)), of.order)
    return Table(
        "learning_rates",
        "Learning rate: what each rate reaches",
        COLUMNS,
        made,
        intro="Rows of one technique and batch differ in the learning rate alone.",
    )


def _searched(of: Sweep) -> pd.DataFrame:
    """Arms with their ``base_lr``, a label that leaves it out, and the number of their ``line``: by
    rising rate."""
    others, labels = without_rates(of.frames.settings)
    cells = of.made(outcomes)
    first = cells.drop_duplicates("arm").sort_values("arm")
    other = first["technique_settings"].map(others)
    found = of.made(arms).assign(
        base_lr=first["base_lr"].array,
        other=other.array,
        technique_label=other.map(labels).array,
    )
    lines = found.groupby(["workload", "framework", "other", *PLACE], sort=False, dropna=False)
    found = found.assign(line=lines.ngroup())
    several = lines["base_lr"].transform("nunique") >= LEAST_RATES
    known = lines["n"].transform("sum") > 0
    known &= ~found["stops"].groupby(found["line"]).transform("any")
    return found[several & known].sort_values("base_lr", kind="stable").reset_index(drop=True)


def _with_best(rows: pd.DataFrame) -> pd.DataFrame:
    """``best`` of each line, and whether it lies at an end of its rates."""
    sound = rows[rows["accuracy"].notna() & (rows["n_diverged"] == 0)]
    best = sound.sort_values("accuracy", ascending=False, kind="stable").drop_duplicates("line")
    ends = rows["base_lr"].where(rows["n"] > 0).groupby(rows["line"])
    is_best = rows.index.isin(best.index)
    notes = pd.Series(pd.NA, index=rows.index, dtype="string")
    notes[is_best & (rows["base_lr"] == ends.transform("min"))] = LOWEST
    notes[is_best & (rows["base_lr"] == ends.transform("max"))] = HIGHEST
    return rows.assign(best=pd.array(is_best, dtype="boolean"), best_note=notes)


def _tied(found: pd.DataFrame, rows: pd.DataFrame) -> pd.Series[Any]:
    """Column ``tied``, from the moments of the arms in ``found``."""
    best = rows.index[rows["best"]]
    place = found["line"].map(pd.Series(best, index=rows.loc[best, "line"]))
    of = welch(accuracy_moments(found), accuracy_moments(found.reindex(place)))
    known = np.isfinite(of.error) & (rows["n_diverged"] == 0)
    return pd.Series((of.low <= 0) & (of.high >= 0), dtype="boolean").where(known)


def figure(of: Sweep) -> Figure | None:
    """A line per technique and batch; None without one."""
    rates = of.made(tried).data
    known = rates[rates["accuracy"].notna()]
    if not len(known):
        return None
    name = place_namer(rates)
    names = {row["line"]: name(row) for row in plain_rows(known.drop_duplicates("line"))}
    seen = looks(list(names.values())[:MOST_LINES])
    drawn = [
        Line(own["base_lr"], own["accuracy"], seen[names[line]], names[line],
             own["accuracy_low"], own["accuracy_high"], bars=True,
             tips=[f"{names[line]}, rate {row['base_lr']:g}: "
                   f"{estimate_in(row, 'accuracy').text(fmt.THREE)}, {fmt.runs(row['accuracy_n'])}"
                   for row in plain_rows(own)])
        for line, own in known.groupby("line", sort=False) if names[line] in seen
    ]  # fmt: skip
    svg = lines(
        {"": drawn}, Axis("base learning rate", "decades", "{:g}".format),
        Axis("validation accuracy"),
    )  # fmt: skip
    caption = (
        "Mean validation accuracy of the runs that did not diverge, with its 95 % t interval over "
        "seeds. A rate at which all runs diverged has no point."
    ) + left_out(len(seen), len(names), "lines; the CSV has all")
    return Figure(KEY, "Accuracy against the learning rate", caption, known, svg)


TOPIC = Topic(tables=(tried,), plots=(figure,))
