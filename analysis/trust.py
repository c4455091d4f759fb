"""By what layer-wise optimizers multiplied the rate: first and last epoch of each condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.display import (
    Column,
    Row,
    Table,
    count,
    percent,
    plain_rows,
    significant,
    with_context,
)
from analysis.frames import frame, in_order
from analysis.tables import ranks_column

_TEXT, _INT, _REAL = "string", "Int64", "Float64"
WHEN = ("first", "last")
_PARTS = {"median": "mean", "smallest": "min", "largest": "max", "clipped_share": "mean"}
_ABOUT = ("technique", "technique_label", "context", "gpus", "global_batch")
COLUMNS: dict[str, str] = {
    "technique": _TEXT, "technique_label": _TEXT, "context": _TEXT, "gpus": _INT,
    "global_batch": _INT, "n": _INT,
    **{f"{when}_{name}": _REAL for when in WHEN for name in _PARTS},
}  # fmt: skip


def trust_table(
    runs: pd.DataFrame, epochs: pd.DataFrame, techniques: Sequence[str]
) -> pd.DataFrame:
    """One row per condition whose completed runs have trust ratios; see COLUMNS.

    Medians and shares are means over runs, smallest and largest are over all of them.
    ``clipped_share`` is, as in the record, the share at the plain rate, which was not clipped.
    """
    condition = runs.set_index("cell_id")["condition"]
    known = epochs[(epochs["status"] == "completed") & epochs["trust_median"].notna()]
    by_condition = known.groupby(known["cell_id"].map(condition), sort=False)
    return in_order(frame([_row(group) for _, group in by_condition], COLUMNS), techniques)


def _row(epochs: pd.DataFrame) -> dict[str, Any]:
    row: dict[str, Any] = {name: epochs.iloc[0][name] for name in _ABOUT}
    by_run = epochs.sort_values("epoch").groupby("cell_id", sort=False)
    row["n"] = by_run.ngroups
    for when, of in (("first", by_run.head(1)), ("last", by_run.tail(1))):
        row |= {f"{when}_{name}": of[f"trust_{name}"].agg(how) for name, how in _PARTS.items()}
    return row


def trust_view(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    columns = (
        ranks_column(runs),
        Column("condition", "left"),
        Column("global batch"),
        Column("first epoch", about="factor on the rate: median over layers and steps (mean over "
               "runs) [smallest, largest]"),
        Column("plain rate kept, first", about="share of (layer, step) where LARC's limit was "
               "above the plain rate; n/a for rules that do not clip"),
        Column("last epoch"),
        Column("plain rate kept, last"),
        Column("runs", about="completed"),
    )  # fmt: skip
    return Table(
        "trust_ratios",
        "Trust ratios: by what layer-wise optimizers multiplied the rate",
        columns,
        tuple(_view_row(row) for row in plain_rows(table)),
        empty="No technique has layer-wise factors.",
    )


def _view_row(row: Row) -> tuple[str, ...]:
    cells = [count(row["gpus"]), with_context(row), count(row["global_batch"])]
    for when in WHEN:
        median, low, high, kept = (row[f"{when}_{name}"] for name in _PARTS)
        cells.append(f"{significant(median)} [{significant(low)}, {significant(high)}]")
        cells.append(percent(kept))
    return (*cells, count(row["n"]))
