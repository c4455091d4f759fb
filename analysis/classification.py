"""What each class got: precision, recall, F1 and support, per run and per condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.checks import reason_for
from analysis.display import Column, Notes, Row, Table, count, number, plain_rows, with_context
from analysis.frames import frame, in_order, values, why_incomplete
from analysis.stats import Mean, mean_t
from analysis.tables import ranks_column
from train.record.run import RunRecord

_TEXT, _INT, _REAL = "string", "Int64", "Float64"
_ABOUT: dict[str, str] = {
    "technique": _TEXT, "technique_label": _TEXT, "context": _TEXT, "gpus": _INT,
    "global_batch": _INT,
}  # fmt: skip
SCORES = ("precision", "recall", "f1")
RUN_COLUMNS: dict[str, str] = {
    "cell_id": _TEXT, "status": _TEXT, "condition": _TEXT, **_ABOUT, "seed": _INT, "epoch": _INT,
    "place": _INT, "class": _TEXT, "support": _INT, "predicted": _INT,
    **{f"{name}{part}": kind for name in SCORES for part, kind in (("", _REAL), ("_why", _TEXT))},
}  # fmt: skip
_STATISTICS = {"n": _INT, "mean": _REAL, "sd": _REAL, "half_width": _REAL, "why": _TEXT}
COLUMNS: dict[str, str] = {
    **_ABOUT, "place": _INT, "class": _TEXT, "n": _INT, "support": _INT,
    **{f"{name}_{part}": kind for name in SCORES for part, kind in _STATISTICS.items()},
}  # fmt: skip
AVERAGE = "mean of the classes"
#: More rows than this are for a CSV: the table then keeps to the largest global batch.
MOST_ROWS = 120
_NONE = "no class scores: "


def classes_frame(records: Sequence[RunRecord], runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run and class of its last evaluation; ``runs`` is the frame of the same records.

    A run without a classification has no row; see ``nothing_why``.
    """
    about = runs.set_index("cell_id")
    named = ("status", "condition", *_ABOUT, "seed")
    rows: list[dict[str, Any]] = []
    for record in records:
        found = record.classification
        if found is None:
            continue
        run = {name: about.at[record.cell_id, name] for name in named}
        run |= {"cell_id": record.cell_id, "epoch": found.epoch}
        for place, score in enumerate(found.classes):
            rows.append(
                {
                    **run,
                    "place": place,
                    "class": score.name,
                    "support": score.support,
                    "predicted": sum(row[place] for row in found.confusion),
                    **_scores(record, score.precision, score.recall, score.f1),
                }
            )
    return frame(rows, RUN_COLUMNS)


def _scores(record: RunRecord, *found: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in zip(SCORES, found, strict=True):
        why = reason_for(record, f"classification.classes.{name}") if value is None else None
        row |= {name: value, f"{name}_why": why}
    return row


def nothing_why(records: Sequence[RunRecord]) -> str:
    """Why there are no scores at all, in the records' own words."""
    reasons = [
        "older records do not have them"
        if "classification" not in record.model_fields_set
        else reason_for(record, "classification")
        for record in records
        if record.classification is None
    ]
    return _NONE + ("; ".join(dict.fromkeys(reasons)) or "no usable run")


def classification_table(classes: pd.DataFrame, techniques: Sequence[str]) -> pd.DataFrame:
    """One row per condition and class, means over the completed runs' seeds; see COLUMNS.

    A score is averaged over the runs in which it has a value; ``*_n`` and ``*_why`` say where
    some lack it. Support is that of one run.
    """
    completed = classes[classes["status"] == "completed"]
    # a folder that was changed between two runs may have other classes
    by_class = completed.groupby(["condition", "place", "class"], sort=False)
    rows = [_row(group) for _, group in by_class]
    return in_order(frame(rows, COLUMNS), techniques)


def _row(group: pd.DataFrame) -> dict[str, Any]:
    first = group.iloc[0]
    row: dict[str, Any] = {name: first[name] for name in (*_ABOUT, "place", "class", "support")}
    row["n"] = len(group)
    for name in SCORES:
        found = mean_t(values(group[name]))
        why = why_incomplete(found, len(group)) if found.n else _reasons(group[f"{name}_why"])
        row |= {f"{name}_{part}": value for part, value in _parts(found, why).items()}
    return row


def _parts(found: Mean, why: str | None) -> dict[str, Any]:
    return {"n": found.n, "mean": found.mean, "sd": found.sd, "half_width": found.half_width,
            "why": why}  # fmt: skip


def _reasons(column: pd.Series[str]) -> str:
    return "; ".join(dict.fromkeys(column.dropna()))


def classification_view(table: pd.DataFrame, runs: pd.DataFrame, why: str) -> Table:
    """``why``: said where no run has scores."""
    notes = Notes()
    columns = (
        ranks_column(runs),
        Column("condition", "left"),
        Column("global batch"),
        Column("class", "left"),
        Column("precision", about="of the validation images predicted to be of the class, the "
               "share that is; mean over the completed runs, after the last epoch"),
        Column("recall", about="of the validation images of the class, the share found"),
        Column("F1", about="harmonic mean of both: 2 right / (predicted + support)"),
        Column("support", about="validation images of the class"),
        Column("runs", about="completed runs with scores"),
    )  # fmt: skip
    shown = table
    intro = ""
    if len(table) > MOST_ROWS:
        shown = table[table["global_batch"] == table["global_batch"].max()]
        intro = "The largest global batch only; classification.csv has all."
    rows: list[tuple[str, ...]] = []
    for _, condition in shown.groupby([*_ABOUT], sort=False, dropna=False):
        by_class = plain_rows(condition)
        rows += [_view_row(row, notes) for row in by_class]
        rows.append(_average(by_class, notes))
    return Table(
        "classification",
        "Classes: what was recognised, and what was taken for it",
        columns,
        tuple(rows),
        notes.lines(),
        intro=intro,
        empty=why[0].upper() + why[1:] + ".",
    )


def _view_row(row: Row, notes: Notes) -> tuple[str, ...]:
    return (
        count(row["gpus"]),
        with_context(row),
        count(row["global_batch"]),
        str(row["class"]),
        *(_mean(row, name, notes) for name in SCORES),
        count(row["support"]),
        count(row["n"]),
    )


def _mean(row: Row, name: str, notes: Notes) -> str:
    mean, why = row[f"{name}_mean"], row[f"{name}_why"]
    if mean is None:
        return notes.missing(why)
    mark = notes.mark(why) if row[f"{name}_n"] < row["n"] else ""
    return f"{number(mean, 3)} {mark}".strip()


def _average(rows: Sequence[Row], notes: Notes) -> tuple[str, ...]:
    """The macro average: each class counts the same, however many images it has."""
    means: list[str] = []
    for name in SCORES:
        found = [row[f"{name}_mean"] for row in rows]
        lacking = sum(value is None for value in found)
        if lacking:
            means.append(notes.missing(f"{lacking} of {len(found)} classes lack the value"))
        else:
            means.append(number(sum(found) / len(found), 3))
    first = rows[0]
    return (
        count(first["gpus"]),
        with_context(first),
        count(first["global_batch"]),
        AVERAGE,
        *means,
        count(sum(row["support"] for row in rows)),
        count(first["n"]),
    )
