"""Figure of confusion matrices: counts of validation images, coloured by the share of their row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from analysis.figures import GRID, INK, PALETTE, Figure, style, to_svg
from analysis.table import plain_rows

KEY, TITLE = "confusion", "Confusion matrices"
#: Beyond these, nothing could be read: the CSV has every matrix.
MOST_CLASSES, MOST_PANELS, MOST_COUNTED = 40, 6, 12
_COLOUR, _ON_COLOUR = to_rgb(PALETTE[0]), "#ffffff"


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
    with style():
        canvas, axes = _canvas(len(panels), classes)
        for axis, panel in zip(axes, panels, strict=True):
            _draw(axis, largest[largest["panel"] == panel])
            axis.set_title(panel, loc="left")
        svg = to_svg(canvas)
    total = len(confusion[["condition", "class_set"]].drop_duplicates())
    caption = _caption(largest, panels, total, classes)
    return Figure(KEY, TITLE, caption, confusion, svg)


def _panels(rows: pd.DataFrame) -> list[str]:
    named = zip(rows["technique_label"], rows["gpus"], rows["global_batch"], rows["context"],
                rows["class_set"], strict=True)  # fmt: skip
    several = rows["class_set"].nunique() > 1
    return [
        f"{label}\n{'1 rank' if gpus == 1 else f'{gpus} ranks'}, batch {batch:,}"
        + (f"\n{context}" if context else "")
        + (f"\nclass set {number}" if several else "")
        for label, gpus, batch, context, number in named
    ]


def _canvas(panels: int, classes: int) -> tuple[Canvas, list[Any]]:
    """Square panels that are large enough for the counts in them; call within style()."""
    columns = min(panels, 2 if classes > 5 else 3)
    rows = -(-panels // columns)
    side = max(2.3, 0.8 + 0.34 * min(classes, MOST_COUNTED))
    canvas = Canvas(figsize=(max(side * columns, 4.6), (side + 0.4) * rows), layout="constrained")
    FigureCanvasSVG(canvas)
    axes = list(canvas.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[panels:]:
        spare.set_visible(False)
    return canvas, axes[:panels]


def _draw(axis: Any, data: pd.DataFrame) -> None:
    names = list(dict.fromkeys(data["true"]))
    place = {name: i for i, name in enumerate(names)}
    cells = [
        (place[row["predicted"]], place[row["true"]], int(row["images"]), float(row["share"]))
        for row in plain_rows(data[data["images"] > 0])
    ]
    # opacity, not a scale of colours: a cell without images shows the page, light or dark
    boxes = PatchCollection(
        [Rectangle((x - 0.5, y - 0.5), 1, 1) for x, y, _, _ in cells],
        facecolors=[(*_COLOUR, share) for *_, share in cells], linewidths=0,
    )  # fmt: skip
    axis.add_collection(boxes)
    if len(names) <= MOST_COUNTED:
        for x, y, images, share in cells:
            axis.text(
                x, y, f"{images:,}", ha="center", va="center", fontsize=7,
                color=_ON_COLOUR if share > 0.5 else INK,
            )  # fmt: skip
    axis.grid(visible=False)
    axis.set(
        xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5), aspect="equal",
        xlabel="predicted", ylabel="true",
    )  # fmt: skip
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set(visible=True, color=GRID, linewidth=0.6)


def _caption(largest: pd.DataFrame, panels: Sequence[str], total: int, classes: int) -> str:
    counts = largest[largest["panel"].isin(list(panels))]["n"]
    low, high = int(counts.min()), int(counts.max())
    text = (
        "Validation images after the last epoch, summed over the completed runs of a condition "
        f"(n = {low if low == high else f'{low} to {high}'}): a row is what an image is, a column "
        "what it was taken for. Colour: share of the row, none to full; on the diagonal, recall."
    )
    if len(panels) < total:
        text += f" Shown: {len(panels)} of {total} matrices, at the largest global batch."
    if largest["class_set"].nunique() > 1:
        text += " Class sets differ where the data set was changed between runs."
    if classes > MOST_COUNTED:
        text += " The counts are in the CSV."
    return text
