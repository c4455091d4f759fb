"""Panels on one canvas, and the texts in them; call within ``style()``."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

#: Inches: of a character, and of a name's line.
CHARACTER, LINE = 0.06, 0.155
SMALL = 8  # points of a text inside a plot
#: Characters of a line above a panel, and of a name in it; inches of all columns.
_HEAD, _NAME, _WIDEST = 34, 36, 9.4


def write(axis: Any, text: str, at: Any, by: Any, coordinates: Any = "data", **how: Any) -> None:
    axis.annotate(text, at, by, xycoords=coordinates, textcoords="offset points", fontsize=SMALL,
                  **how)  # fmt: skip


def shortened(name: str) -> str:
    """Of a long name a setting without its kind (optimizer.weight_decay), then without its middle:
    names of settings differ at their ends."""
    if len(name) > _NAME:
        name = re.sub(r"\b\w+\.(?=\w+=)", "", name)
    return name if len(name) <= _NAME else f"{name[: _NAME // 3]}…{name[_NAME // 3 + 1 - _NAME :]}"


def small_multiples(panels: int, wide: float = 2.6, high: float = 2.4) -> tuple[Canvas, list[Any]]:
    """A canvas with ``panels`` axes of some inches and one y axis, two in a row where they are
    narrow enough; call within ``style()``."""
    columns = min(panels, 2, max(1, int(_WIDEST // wide)))
    rows = -(-panels // columns)
    canvas = Canvas(figsize=(max(wide * columns, 4.6), high * rows), layout="constrained")
    FigureCanvasSVG(canvas)
    axes = list(canvas.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for spare in axes[panels:]:
        spare.set_visible(False)
    return canvas, axes[:panels]


def head(axis: Any, panel: str) -> None:
    """The panel's name above it, broken so that it stays above its own axes."""
    parts = [part for line in panel.splitlines() for part in textwrap.wrap(line, _HEAD) or [""]]
    axis.set_title("\n".join(parts), loc="left")
