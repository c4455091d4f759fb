"""What each class got: precision, recall, F1 and support, per condition."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis import fmt
from analysis.records.frames import in_order
from analysis.table import Column, Table, types
from analysis.topics.names import NAMES, joined_by, lacking, ranks_column
from analysis.topics.topic import Sweep, Topic

SCORES = ("precision", "recall", "f1")
_ABOUT = ("technique", "technique_label", "context", "gpus", "global_batch")


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    return (
        *NAMES,
        ranks_column(runs),
        Column("global_batch", "Int64", "global batch"),
        Column("place", "Int64"),
        Column("class", "string", "class"),
        Column("precision", "Float64", "precision", "of the validation images predicted to be of "
               "the class, the share that is; mean over the completed runs, after the last epoch",
               format=fmt.THREE, note="precision_why"),
        Column("recall", "Float64", "recall", "of the validation images of the class, the share "
               "found", format=fmt.THREE, note="recall_why"),
        Column("f1", "Float64", "F1", "harmonic mean of both: 2 right / (predicted + support)",
               format=fmt.THREE, note="f1_why"),
        *(Column(f"{name}_why", "string") for name in SCORES),
        Column("support", "Int64", "support", "validation images of the class"),
        Column("n", "Int64", "runs", "completed, with scores"),
    )  # fmt: skip


def table(of: Sweep) -> Table:
    """One row per condition and class: means over the completed runs in which a score has a value.
    Support is that of one run."""
    made, classes = columns(of.runs), of.frames.classes
    completed = classes[classes["status"] == "completed"]
    # a folder that was changed between two runs may have other classes
    by_class = completed.groupby(["condition", "place", "class"], sort=False, observed=True)
    rows = by_class[[*_ABOUT, "support"]].first()
    rows["n"] = by_class.size()
    for name in SCORES:
        rows[name] = by_class[name].mean()
        rows[f"{name}_why"] = _why(by_class, name)
    wanted = types(made)
    data = rows.reset_index().reindex(columns=list(wanted)).astype(wanted)
    ordered = in_order(data, of.order)
    return Table(
        "classification",
        "What was recognised, class by class",
        made,
        ordered.sort_values("global_batch", ascending=False, kind="stable", ignore_index=True),
        intro="The largest global batch first.",
        folded=True,
    )


def _why(by_class: Any, name: str) -> list[str | None]:
    """Why a score is null, or of fewer runs than there are."""
    runs, known = by_class.size(), by_class[name].count()
    why = joined_by(by_class.obj[f"{name}_why"], by_class.ngroup().to_numpy(), len(runs))
    parts = zip(known, runs, why, strict=True)
    return [lacking(None, n, every, every, own) for n, every, own in parts]


TOPIC = Topic(tables=(table,))
