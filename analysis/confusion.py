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

from analysis.display import plain_rows
from analysis.frames import frame, in_order
from analysis.plots import GRID, INK, PALETTE, Figure, empty, style, to_svg
from train.record.run import Classification, RunRecord

KEY, TITLE = "confusion", "Confusion matrices"
_TEXT, _INT, _REAL = "string", "Int64", "Float64"
COLUMNS: dict[str, str] = {
    "panel": _TEXT, "technique": _TEXT, "technique_label": _TEXT, "context": _TEXT,
    "gpus": _INT, "global_batch": _INT, "n": _INT, "true": _TEXT, "predicted": _TEXT,
    "images": _INT, "share": _REAL,
}  # fmt: skip
ABOUT = ("technique", "technique_label", "context", "gpus", "global_batch")
#: Beyond these, nothing could be read: the CSV has every matrix.
MOST_CLASSES, MOST_PANELS, MOST_COUNTED = 40, 6, 12
_COLOUR, _ON_COLOUR = to_rgb(PALETTE[0]), "#ffffff"


def confusion_figure(
    records: Sequence[RunRecord], runs: pd.DataFrame, techniques: Sequence[str], why: str
) -> Figure:
    """One panel per condition at the largest global batch; ``why``: said where there is none."""
    data = confusion_data(records, runs, techniques)
    if not len(data):
        return empty(KEY, TITLE, why, data)
    largest = data[data["global_batch"] == data["global_batch"].max()]
    classes = largest["true"].nunique()
    if classes > MOST_CLASSES:
        return empty(KEY, TITLE, f"{classes} classes are too many to be read; see the CSV", data)
    panels = list(dict.fromkeys(largest["panel"]))[:MOST_PANELS]
    with style():
        canvas, axes = _canvas(len(panels), classes)
        for axis, panel in zip(axes, panels, strict=True):
            _draw(axis, largest[largest["panel"] == panel])
            axis.set_title(panel, loc="left")
        svg = to_svg(canvas)
    return Figure(KEY, TITLE, _caption(data, panels, classes), data, svg)


def confusion_data(
    records: Sequence[RunRecord], runs: pd.DataFrame, techniques: Sequence[str]
) -> pd.DataFrame:
    """A row per condition, true and predicted class: images summed over its completed runs.

    ``share``: of the true class's images; null where the class has none.
    """
    found = {r.cell_id: r.classification for r in records if r.classification is not None}
    there = runs[runs["cell_id"].isin(list(found)) & (runs["status"] == "completed")]
    # a folder that was changed between two runs may have other classes
    names = [" ".join(score.name for score in found[cell].classes) for cell in there["cell_id"]]
    rows: list[dict[str, Any]] = []
    usable = in_order(there.assign(names=names), techniques)
    for _, group in usable.groupby(["condition", "names"], sort=False):
        rows += _matrix_rows(group, [found[cell] for cell in group["cell_id"]])
    return frame(rows, COLUMNS)


def _matrix_rows(runs: pd.DataFrame, matrices: Sequence[Classification]) -> list[dict[str, Any]]:
    first = runs.iloc[0]
    about = {name: first[name] for name in ABOUT} | {"panel": _panel(first), "n": len(runs)}
    names = [score.name for score in matrices[0].classes]
    rows: list[dict[str, Any]] = []
    for i, true in enumerate(names):
        line = [sum(matrix.confusion[i][j] for matrix in matrices) for j in range(len(names))]
        rows += [
            {**about, "true": true, "predicted": predicted, "images": images,
             "share": images / sum(line) if sum(line) else None}
            for predicted, images in zip(names, line, strict=True)
        ]  # fmt: skip
    return rows


def _panel(run: pd.Series[Any]) -> str:
    ranks = "1 rank" if run["gpus"] == 1 else f"{run['gpus']} ranks"
    context = f"\n{run['context']}" if run["context"] else ""
    return f"{run['technique_label']}\n{ranks}, batch {run['global_batch']:,}{context}"


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


def _caption(data: pd.DataFrame, panels: Sequence[str], classes: int) -> str:
    counts = data[data["panel"].isin(list(panels))]["n"]
    low, high = int(counts.min()), int(counts.max())
    text = (
        "Validation images after the last epoch, summed over the completed runs of a condition "
        f"(n = {low if low == high else f'{low} to {high}'}): a row is what an image is, a column "
        "what it was taken for. Colour: share of the row, none to full; on the diagonal, recall."
    )
    total = data["panel"].nunique()
    if len(panels) < total:
        text += f" Shown: {len(panels)} of {total} conditions, at the largest global batch."
    if classes > MOST_COUNTED:
        text += " The counts are in the CSV."
    return text
