"""What was applied: steps, images and rates of each condition, added up from its epochs.

Taken from records, not from configs, so that an unequal budget or a rate that never came to be is
seen. One row per condition, over its completed runs; where these differ, from the least to the
most.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis.records.frames import in_order
from analysis.records.lists import Names
from analysis.table import Column, DType, Row, Table, count, first_of, frame, significant
from analysis.topics.convergence import curves
from analysis.topics.names import NAMES, batch_text, ranks_column
from analysis.topics.topic import MOST_DRAWN, Sweep, Topic

#: What is added up per run -> type, heading, description.
MEASURES: dict[str, tuple[DType, str, str]] = {
    "epochs": ("Int64", "epochs", ""),
    "steps": ("Int64", "steps", "optimizer steps executed"),
    "images": ("Int64", "images seen", "over all ranks and epochs: the budget in computing"),
    "lr_peak": ("Float64", "lr peak", "largest rate at the first or last step of an epoch, as "
                "applied"),
    "skipped_steps": ("Int64", "skipped", "steps without an update, since a gradient overflowed in "
                      "half precision"),
}  # fmt: skip


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    grows = runs["global_batch_last"] > runs["global_batch"]
    # of a range, the low ends alone may not vary
    said = {
        "epochs": runs["epochs_run"].nunique() > 1,
        "skipped_steps": (runs["skipped_steps"] > 0).any(),
        "accumulation": ((runs["accumulation"] > 1) | grows).any(),
    }
    shown: list[Column] = []
    for name, (kind, heading, about) in MEASURES.items():
        varied = not said.get(name, True)
        shown += [
            Column(f"{name}_low", kind, heading, about, cell=_between(name), only_if_varied=varied),
            Column(f"{name}_high", kind),
        ]  # fmt: skip
    return (
        *NAMES,
        ranks_column(runs),
        Column("batch_first", "Int64", "global batch", "of the first → last epoch, where it grows",
               cell=lambda row: batch_text(row["batch_first"], row["batch_last"])),
        Column("batch_last", "Int64"),
        Column("accumulation_first", "Int64", "batches a step", "whose gradients a rank adds up "
               "before each step (first → last epoch): above 1 they stand in for that many times "
               "the ranks", only_if_varied=not said["accumulation"],
               cell=lambda row: batch_text(row["accumulation_first"], row["accumulation_last"])),
        Column("accumulation_last", "Int64"),
        *shown,
        Column("n", "Int64", "runs", "completed"),
        Column("cells", "object"),
    )  # fmt: skip


def table(of: Sweep) -> Table:
    """One row per condition with a completed run.

    ``lr_peak`` is the largest of the rates known: of the first and the last step of each epoch,
    and its mean.
    """
    made = columns(of.runs)
    completed = of.runs[of.runs["status"] == "completed"]
    found = completed.join(summed(of.frames.epochs), on="cell_id", rsuffix="_summed")
    by_condition = found.groupby("condition", sort=False, observed=True)
    rows = by_condition[["technique", "technique_label", "context", "gpus"]].first()
    for name in MEASURES:
        column = f"{name}_summed" if f"{name}_summed" in found else name
        rows[f"{name}_low"] = by_condition[column].min()
        rows[f"{name}_high"] = by_condition[column].max()
    for name in ("batch", "accumulation"):
        rows[f"{name}_first"] = by_condition[f"{name}_first"].first()
        rows[f"{name}_last"] = by_condition[f"{name}_last"].max()
    rows["n"] = by_condition.size()
    rows["cells"] = by_condition["cell_id"].agg(Names)
    return Table(
        "applied",
        "What was applied",
        made,
        in_order(frame(rows.to_dict("records"), made), of.order),  # type: ignore[arg-type]
        intro="Added up from the records of the epochs, not from the configs. Rows of unequal "
        "steps or images are no comparison at equal budget.",
        folded=True,
    )


def summed(epochs: pd.DataFrame) -> pd.DataFrame:
    """MEASURES of each cell from its epochs, by cell."""
    kept = ("steps", "images", "skipped_steps", "epoch_batch", "accumulation")
    made = {
        **{name: epochs[name].array for name in kept},
        "rate": epochs[["lr_first", "lr_last", "lr_mean"]].max(axis=1).array,
    }
    runs, cells = pd.factorize(epochs["cell_id"])
    # of a million epochs nothing is copied
    by_cell = pd.DataFrame(made, copy=False).groupby(runs)
    return pd.DataFrame(
        {
            "epochs": by_cell.size(),
            "steps": by_cell["steps"].sum(),
            "images": by_cell["images"].sum(),
            "lr_peak": by_cell["rate"].max(),
            "skipped_steps": by_cell["skipped_steps"].sum(),
            "batch_first": by_cell["epoch_batch"].first(),
            "batch_last": by_cell["epoch_batch"].last(),
            "accumulation_first": by_cell["accumulation"].first(),
            "accumulation_last": by_cell["accumulation"].last(),
        }
    ).set_axis(pd.Index(cells, name="cell_id"))


def _between(name: str) -> Callable[[Row], str]:
    def write(row: Row) -> str:
        shown = significant if name == "lr_peak" else count
        low, high = (shown(row[f"{name}_{end}"]) for end in ("low", "high"))
        return low if low == high else f"{low} to {high}"

    return write


def _smoothed(runs: pd.DataFrame) -> str:
    """Whose loss has another floor than that of the others."""
    labels = runs.loc[runs["label_smoothing"] > 0, "technique_label"]
    names = first_of(list(dict.fromkeys(labels)), MOST_DRAWN)
    return f"Against smoothed labels, so never near 0: {names}." if names else ""


TOPIC = Topic(
    tables=(table,),
    plots=(lambda of: curves.figure(of.frames.epochs, curves.LOSS, of.seen, _smoothed(of.runs)),),
)
