"""How rows of several topics are named, and the columns that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import fmt
from analysis.stats.intervals import Kind, means
from analysis.table import Column, Row


def with_context(row: Row) -> str:
    """Technique, and what else tells this row from its neighbours."""
    context = fmt.text(row["context"])
    return f"{row['technique_label']}; {context}" if context else str(row["technique_label"])


def place_namer(rows: pd.DataFrame) -> Callable[[Mapping[str, Any]], str]:
    """Names of the rows of a figure: technique and context, then ranks and batch as they differ."""
    differ = [name for name in ("gpus", "global_batch") if rows[name].nunique() > 1]

    def name(row: Mapping[str, Any]) -> str:
        batch = f"batch {fmt.count(row['global_batch'])}"
        places = {"gpus": ranks_text(row["gpus"]), "global_batch": batch}
        return ", ".join([with_context(dict(row)), *(places[one] for one in differ)])

    return name


def ranks_text(gpus: int) -> str:
    return fmt.counted(gpus, "rank")


def panel_name(context: str | None, gpus: int, batch: int) -> str:
    """Of a figure with a panel for each rank count and batch."""
    return f"{ranks_text(gpus)}, batch {fmt.count(batch)}" + (f"\n{context}" if context else "")


def mode(row: Mapping[str, Any]) -> str:
    """Weak or strong scaling, with the batch that is fixed."""
    weak = row["scaling"] == "weak"
    batch = row["batch_per_rank"] if weak else row["global_batch"]
    return f"weak, {fmt.count(batch)} per rank" if weak else f"strong, {fmt.count(batch)}"


def namer(rows: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], str]:
    """Names of rows in a sentence, by what the rows differ in, which is looked up once: technique,
    context, and the batch of a scaling series where others have the same name."""
    differ = len({row["context"] for row in rows}) > 1

    def parts(row: Mapping[str, Any]) -> tuple[str, str]:
        return str(row["technique_label"]), (fmt.text(row["context"]) if differ else "")

    series: dict[tuple[str, str], set[Any]] = {}
    for row in rows:
        series.setdefault(parts(row), set()).add(row["series"] if "scaling" in row else None)

    def name(row: Mapping[str, Any]) -> str:
        technique, context = parts(row)
        batch = mode(row) if len(series[technique, context]) > 1 else ""
        more = fmt.joined([context, batch], "; ")
        return f"{technique} ({more})" if more else technique

    return name


ratio_text = fmt.TWO
#: What names a row of a condition.
NAMES: tuple[Column, ...] = (
    Column("technique", "string"),
    Column("technique_label", "string"),
    Column("context", "object"),
    Column("condition_in_words", None, "condition", "technique, and the settings that differ "
           "within this sweep", cell=with_context),
)  # fmt: skip


def ranks_column(runs: pd.DataFrame) -> Column:
    """GPUs only where every rank had one; elsewhere the footnote says what a rank was."""
    kinds = set(runs["device_kind"])
    devices = " and ".join(sorted(set(runs["device"]))) or "unknown"
    about = "groups of CPU cores, not GPUs"
    if "gpu" in kinds:
        about = "one rank per GPU" if kinds == {"gpu"} else "one GPU or a group of CPU cores each"
    heading = "GPUs" if kinds == {"gpu"} else "ranks"
    return Column("gpus", "Int64", heading, f"{about}; device: {devices}", only_if_varied=True)


def cores_text(count: int) -> str:
    return f"{fmt.counted(count, 'core')} per rank"


def batch_text(first: Any, last: Any) -> str:
    """A global batch, and what it has grown to."""
    grown = "" if pd.isna(last) or first == last else f" → {fmt.count(last)}"
    return fmt.count(first) + grown


def reasons(column: Iterable[object]) -> str | None:
    """Distinct reasons in their order; None where there is none."""
    # of many runs, which mostly say the same
    values: Iterable[Any] = column.dropna().unique() if isinstance(column, pd.Series) else column
    found = dict.fromkeys(str(item) for item in values if not pd.isna(item))
    return "; ".join(found) or None


def joined_by(column: pd.Series[Any], rows: NDArray[np.integer[Any]], count: int) -> NDArray[Any]:
    """Distinct texts of the runs of each row of a table, in their order; None where there is none.

    Args:
        rows: number of each run's row, from 0.
    """
    told = pd.DataFrame({"row": rows, "text": column.array}).dropna().drop_duplicates()
    found = told["text"].map(str).groupby(told["row"]).agg("; ".join).reindex(range(count))
    return found.astype(object).where(found.notna(), None).to_numpy()


def over_completed(
    runs: pd.DataFrame, name: str, rows: NDArray[np.integer[Any]], count: int, kind: Kind = "real"
) -> pd.DataFrame:
    """Means of a column over the completed runs of each row of a table, with their intervals.

    The note says why a mean is of fewer runs than completed, or of none; it is in ``NAME_why``
    where there is such a column.

    Args:
        rows: number of each run's row, from 0.

    Returns:
        the parts of an Estimate, one row per row of the table.
    """
    done = (runs["status"] == "completed").to_numpy(bool)
    values = runs[name].to_numpy(float, na_value=np.nan)
    found = means(np.where(done, values, np.nan), rows, count, kind)
    why: Iterable[str | None] = [None] * count
    if f"{name}_why" in runs:
        why = joined_by(runs[f"{name}_why"].where(done), rows, count)
    every, kept = (np.bincount(own, minlength=count).tolist() for own in (rows, rows[done]))
    parts = zip(found["note"].tolist(), found["n"].tolist(), kept, every, why, strict=True)
    return found.assign(note=np.array([lacking(*part) for part in parts], object))


def lacking(note: str | None, n: int, completed: int, runs: int, why: str | None) -> str | None:
    """``note`` of a mean, with why it is of ``n`` runs where more completed, or of none."""
    if not completed:
        return all_diverged(runs)
    if not n:
        return why or "the records do not have it"
    if n < completed:
        fewer = f"{completed - n} of {completed} runs lack the value"
        return reasons([note, f"{fewer}: {why}" if why else fewer])
    return note


def all_diverged(runs: int, name: str = "") -> str:
    """``name``: whose runs, where several are told of."""
    whose = f" of {name}" if name else ""
    return f"all {runs} runs{whose} diverged" if runs > 1 else f"the only run{whose} diverged"


def diverged_text(row: Row) -> str:
    """``1 of 3 (1 to 91 %)``, from the estimate ``diverged`` and ``n``."""
    lost = round((row["diverged"] or 0) * row["n"])
    if not lost:
        return f"0 of {row['n']}"
    low, high = (100 * row[f"diverged_{end}"] for end in ("low", "high"))
    return f"{lost} of {row['n']} ({low:.0f} to {high:.0f} %)"


def only(values: Sequence[Any]) -> Any:
    """The value that all share; None where they differ or there is none."""
    return values[0] if len(set(values)) == 1 else None
