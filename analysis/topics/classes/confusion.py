"""Figure of confusion matrices: counts of validation images, coloured by the share of their row."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.figures import Figure, n_of
from analysis.plots.matrix import Matrix, matrices
from analysis.table import plain_rows
from analysis.topics.topic import panel_name

KEY, TITLE = "confusion", "Confusion matrices"
#: Beyond these, nothing could be read: the CSV has every matrix.
MOST_CLASSES, MOST_PANELS, MOST_COUNTED = 40, 6, 12


def figure(confusion: pd.DataFrame) -> Figure | None:
    """One panel per condition and set of classes at the largest global batch; None without scores.

    Args:
        confusion: a row per condition, set of classes, true and predicted class: images summed
            over its completed runs, and their share of the true class.
    """
    if not len(confusion):
        return None
    largest = confusion[confusion["global_batch"] == confusion["global_batch"].max()]
    largest = largest.assign(panel=_panels(largest))
    classes = int(largest.groupby("class_set")["true"].nunique().max())
    if classes > MOST_CLASSES:
        caption = f"Not drawn: {classes} classes are too many to be read; the CSV has the counts."
        return Figure(KEY, TITLE, caption, confusion, None)
    panels = list(dict.fromkeys(largest["panel"]))[:MOST_PANELS]
    svg = matrices(
        {panel: _matrix(largest[largest["panel"] == panel]) for panel in panels},
        "true", "predicted", most_texts=MOST_COUNTED, most_names=MOST_CLASSES,
    )  # fmt: skip
    total = len(confusion[["condition", "class_set"]].drop_duplicates())
    caption = _caption(largest, panels, total, classes)
    return Figure(KEY, TITLE, caption, confusion, svg)


def _panels(rows: pd.DataFrame) -> list[str]:
    several = rows["class_set"].nunique() > 1
    return [
        f"{row['technique_label']}\n{panel_name(row['context'], row['gpus'], row['global_batch'])}"
        + (f"\nclass set {row['class_set']}" if several else "")
        for row in plain_rows(rows)
    ]


def _matrix(data: pd.DataFrame) -> Matrix:
    names = list(dict.fromkeys(data["true"]))
    images, shares = (
        data.pivot(index="true", columns="predicted", values=value).loc[names, names]
        for value in ("images", "share")
    )
    fills = shares.where(images > 0).to_numpy(float, na_value=float("nan"))
    return Matrix(fills, [[f"{cell:,}" for cell in row] for row in images.to_numpy()], names)


def _caption(largest: pd.DataFrame, panels: Sequence[str], total: int, classes: int) -> str:
    n = n_of(largest.loc[largest["panel"].isin(list(panels)), "n"])
    text = (
        "Validation images after the last epoch, summed over the completed runs of a condition "
        f"({n}): a row is what an image is, a column "
        "what it was taken for. Colour: share of the row, none to full; on the diagonal, recall."
    )
    if len(panels) < total:
        text += f" Shown: {len(panels)} of {total} matrices, at the largest global batch."
    if largest["class_set"].nunique() > 1:
        text += " Class sets differ where the data set was changed between runs."
    if classes > MOST_COUNTED:
        text += " The counts are in the CSV."
    return text
