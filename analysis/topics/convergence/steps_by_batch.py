"""Figure of the steps to the target against the global batch: every run a dot, the fitted law."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.plots.figure import Figure, Look, hidden, left_out, looks, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.prediction.critical_batch import law
from analysis.table import Column, Row, joined, plain_rows, runs_in_words, significant, text, types

KEY = "steps_by_batch"
MOST_PANELS, MOST_LINES = 4, 12
COLUMNS: tuple[Column, ...] = (
    Column("panel", "string"), Column("kind", "string"), Column("technique", "string"),
    Column("cell_id", "string"), Column("status", "string"), Column("seed", "Int64"),
    Column("global_batch"), Column("base_lr"), Column("steps"), Column("met", "boolean"),
)  # fmt: skip
_POINTS = 40  # of the line of a law


def images(value: Any) -> str:
    """A batch that was fitted: tenths of an image only below ten."""
    return significant(value, 2)


def figure(found: pd.DataFrame, fitted: pd.DataFrame, seen: Mapping[str, Look]) -> Figure | None:
    """A panel per workload; ``found``: the points of critical_batch.py; ``fitted``: its table;
    ``seen``: the look of each technique that is drawn; after a search over rates, which labels
    there have, there are looks of their own. None where none of these has two batches."""
    if not len(fitted):
        return None
    data = numbers(found, fitted)
    labels = list(dict.fromkeys(data["technique"]))
    if searched := bool((found["rates"] > 1).any()):
        seen = looks(labels[:MOST_LINES])
    shown = data[data["technique"].isin(list(seen))]
    panels, more = panels_of(shown, MOST_PANELS, "panels; the CSV has all")
    if not panels:
        return None
    svg = lines(
        {panel: [*_lines(own, seen)] for panel, own in panels.items()},
        Axis("global batch", "octaves"), Axis("steps to the target", "decades"),
    )  # fmt: skip
    runs = shown[(shown["kind"] == "run") & shown["panel"].isin(list(panels))]
    caption = joined([
        f"{runs_in_words(len(runs))}, one dot each; those of equal steps share one.",
        "" if runs["met"].all() else "Hollow: the target was not reached within these steps, which "
        "the fit counts.",
        "Lines: S(B) = S_min (1 + B_crit / B), fitted; the table has the intervals."
        if (shown["kind"] == "law").any() else "",
    ])  # fmt: skip
    if searched:
        more += left_out(len(seen), len(labels), "techniques, the first; the CSV has all")
    else:
        more += hidden(seen, labels)
    return Figure(KEY, "Steps to the target against the batch", caption + more, data, svg)


def numbers(found: pd.DataFrame, fitted: pd.DataFrame) -> pd.DataFrame:
    """A row per run, then per point of the line of each law."""
    panels = fitted.set_index("series")["context"]
    dots = found.assign(
        kind="run", technique=found["technique_label"], panel=found["series"].map(panels)
    )
    laws = plain_rows(fitted[fitted["critical_batch"].notna()])
    wanted = types(COLUMNS)
    parts = [
        part.reindex(columns=list(wanted)).astype(wanted) for part in (dots, *map(_line, laws))
    ]
    return pd.concat(parts, ignore_index=True)


def _line(row: Row) -> pd.DataFrame:
    batches = np.geomspace(row["batch_low"], row["batch_high"], _POINTS)
    return pd.DataFrame(
        {
            "panel": text(row["context"]),
            "kind": "law",
            "technique": row["technique_label"],
            "global_batch": batches,
            "steps": law(batches, row["steps_min"], row["critical_batch"]),
        }
    )


def _lines(data: pd.DataFrame, seen: Mapping[str, Look]) -> Iterable[Line]:
    """The law and the runs of each technique."""
    for label, look in seen.items():
        own = data[data["technique"] == label]
        law, runs = own[own["kind"] == "law"], own[own["kind"] == "run"]
        # of thousands of runs many end with the same epoch
        dots = runs.drop_duplicates(["global_batch", "steps", "met"])
        if len(dots):
            yield Line(law["global_batch"], law["steps"], look, label if len(law) else "", size=0)
            yield Line(dots["global_batch"], dots["steps"], look, "" if len(law) else label,
                       width=0, hollow=(~dots["met"].astype(bool)).tolist())  # fmt: skip
