"""Figure of the factors by which layer-wise optimizers multiplied the rate of each variable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.plots.figure import Figure, Look, looks, panels_of
from analysis.plots.lines import Axis, Line, lines
from analysis.table import plain_rows
from analysis.topics.names import with_context
from train.record.run import RunRecord

MOST_PANELS = 4


def figure(runs: pd.DataFrame, records: Iterable[RunRecord]) -> Figure | None:
    """A panel per technique, a line per batch; None where no record has them by variable."""
    data = numbers(runs, records)
    panels, more = panels_of(data, MOST_PANELS, "techniques; the CSV has all", "condition")
    if not panels:
        return None
    seen = looks(
        [f"batch {fmt.count(batch)}" for batch in sorted(set(pd.concat(panels)["global_batch"]))]
    )
    # a log axis has no place for 0
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
    by_batch = {f"batch {fmt.count(batch)}": own for batch, own in panel.groupby("global_batch")}
    return [
        Line(own["place"], own["factor"], seen[batch], batch, width=1.2, size=4,
             tips=[f"{row['variable']}, {batch}: {fmt.significant(row['factor'])}, "
                   f"{fmt.runs(row['n'])}" for row in plain_rows(own)])
        for batch, own in by_batch.items()
    ]  # fmt: skip


def numbers(runs: pd.DataFrame, records: Iterable[RunRecord]) -> pd.DataFrame:
    """A row per technique with its settings, batch and variable; on other ranks another one."""
    factors = {record.cell_id: own for record in records if (own := _factors(record))}
    known = runs[(runs["status"] == "completed") & runs["cell_id"].isin(factors)]
    of = [*map(with_context, plain_rows(known[["technique_label", "context"]]))]
    if known["gpus"].nunique() > 1:
        of = [f"{name}, {fmt.count(n)} ranks" for name, n in zip(of, known["gpus"], strict=True)]
    rows = [
        {"condition": name, "global_batch": run.global_batch, "variable": variable,
         "place": place, "log": math.log(factor) if factor > 0 else -math.inf}
        for name, run in zip(of, known.itertuples(), strict=True)
        for place, (variable, factor) in enumerate(factors[run.cell_id], start=1)
    ]  # fmt: skip
    names = ["condition", "global_batch", "variable", "place", "log"]
    found = pd.DataFrame(rows, columns=names).groupby(names[:-1], sort=False)["log"]
    made = found.agg(["mean", "size"]).reset_index().rename(columns={"size": "n"})
    return made.assign(factor=np.exp(made.pop("mean").astype(float)))


def _factors(record: RunRecord) -> list[tuple[str, float]]:
    """Medians over the last epoch's steps, by variable."""
    trust = record.epochs[-1].trust if record.epochs else None
    return list(zip(record.adapted, trust.layers if trust else (), strict=False))
