"""By what layer-wise optimizers multiplied the rate: by condition, and by variable."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.figures import Figure, Look, looks, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.records.frames import in_order
from analysis.table import (
    Column,
    Row,
    Table,
    count,
    frame,
    percent,
    plain_rows,
    runs_in_words,
    significant,
)
from analysis.topics.topic import NAMES, ranks_column, with_context

WHEN = ("first", "last")
MOST_PANELS = 4
_PARTS = {"median": "mean", "smallest": "min", "largest": "max", "clipped_share": "mean"}


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    shown = []
    for when in WHEN:
        first = when == "first"
        shown += [
            Column(f"{when}_median", "Float64", f"{when} epoch", "factor on the rate: median over "
                   "layers and steps (mean over runs) [smallest, largest]" if first else "",
                   cell=lambda row, when=when: _factor(row, when)),  # type: ignore[misc]
            Column(f"{when}_smallest"),
            Column(f"{when}_largest"),
            Column(f"{when}_clipped_share", "Float64", f"plain rate kept, {when}", "share of "
                   "(layer, step) where LARC's limit was above the plain rate; n/a for rules that "
                   "do not clip" if first else "", format=percent),
        ]  # fmt: skip
    return (
        *NAMES,
        ranks_column(runs),
        Column("global_batch", "Int64", "global batch"),
        *shown,
        Column("n", "Int64", "runs", "completed"),
    )


def table(epochs: pd.DataFrame, runs: pd.DataFrame, techniques: Sequence[str]) -> Table:
    """One row per condition whose completed runs have trust ratios.

    Medians and shares are means over runs, smallest and largest are over all of them.
    ``clipped_share`` is, as in the record, the share at the plain rate, which was not clipped.
    """
    about = runs.set_index("cell_id")["condition"]
    known = epochs[(epochs["status"] == "completed") & epochs["trust_median"].notna()]
    known = known.sort_values(["cell_id", "epoch"]).assign(condition=known["cell_id"].map(about))
    made = columns(runs)
    rows: list[dict[str, Any]] = []
    if len(known):
        names = ["technique", "technique_label", "context", "gpus", "global_batch"]
        found = known.groupby("condition", sort=False, observed=True)[names].first()
        by_run = known.groupby("cell_id", sort=False, observed=True)
        found["n"] = known.groupby("condition", sort=False, observed=True)["cell_id"].nunique()
        for when, of in (("first", by_run.head(1)), ("last", by_run.tail(1))):
            ends = of.groupby("condition", sort=False, observed=True)
            for part, how in _PARTS.items():
                found[f"{when}_{part}"] = ends[f"trust_{part}"].agg(how)
        rows = found.to_dict("records")  # type: ignore[assignment]
    return Table(
        "trust_ratios",
        "Trust ratios: by what layer-wise optimizers multiplied the rate",
        made,
        in_order(frame(rows, made), techniques),
    )


def _factor(row: Row, when: str) -> str:
    median, low, high = (significant(row[f"{when}_{p}"]) for p in ("median", "smallest", "largest"))
    return f"{median} [{low}, {high}]"


def figure(runs: pd.DataFrame) -> Figure | None:
    """A panel per technique, a line per batch; None where no record has them by variable."""
    data = numbers(runs)
    panels, more = panels_of(data, MOST_PANELS, "techniques; the CSV has all", "condition")
    if not panels:
        return None
    seen = looks(
        [f"batch {count(batch)}" for batch in sorted(set(pd.concat(panels)["global_batch"]))]
    )
    by_panel = {panel: _lines(own[own["factor"] > 0], seen) for panel, own in panels.items()}
    svg = lines(by_panel, Axis("variable, from the input", whole=True),
                Axis("factor on the rate", "decades"))  # fmt: skip
    caption = (
        "By what a layer-wise optimizer multiplied the rate of each variable: median over the "
        "steps of the last epoch, geometric mean over completed runs."
    )
    if (data["factor"] == 0).any():
        caption += " 0, of a variable that does not move, is not drawn."
    return Figure("layer_factors", "Rates by layer", caption + more, data, svg)


def _lines(panel: pd.DataFrame, seen: Mapping[str, Look]) -> list[Line]:
    by_batch = {f"batch {count(batch)}": own for batch, own in panel.groupby("global_batch")}
    return [
        Line(own["place"], own["factor"], seen[batch], batch, width=1.2, size=4,
             tips=[f"{row['variable']}, {batch}: {significant(row['factor'])}, "
                   f"{runs_in_words(row['n'])}" for row in plain_rows(own)])
        for batch, own in by_batch.items()
    ]  # fmt: skip


def numbers(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per technique with its settings, batch and variable; on other ranks another one."""
    known = runs[(runs["status"] == "completed") & runs["layer_factors"].notna()]
    of = [*map(with_context, plain_rows(known[["technique_label", "context"]]))]
    if known["gpus"].nunique() > 1:
        of = [f"{name}, {count(n)} ranks" for name, n in zip(of, known["gpus"], strict=True)]
    rows = [
        {"condition": name, "global_batch": run.global_batch, "variable": variable,
         "place": place, "log": math.log(factor) if factor > 0 else -math.inf}
        for name, run in zip(of, known.itertuples(), strict=True)
        for place, (variable, factor) in enumerate(_factors(run.layer_factors), start=1)
    ]  # fmt: skip
    names = ["condition", "global_batch", "variable", "place", "log"]
    found = pd.DataFrame(rows, columns=names).groupby(names[:-1], sort=False)["log"]
    made = found.agg(["mean", "size"]).reset_index().rename(columns={"size": "n"})
    return made.assign(factor=np.exp(made.pop("mean").astype(float)))


def _factors(text: Any) -> list[tuple[str, float]]:
    return list(json.loads(text).items())
