"""By what layer-wise optimizers multiplied the rate: first and last epoch of each condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.records.frames import in_order
from analysis.table import Column, Row, Table, frame, percent, significant
from analysis.topics.topic import NAMES, ranks_column

WHEN = ("first", "last")
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
