"""Training loss against epochs."""

from __future__ import annotations

import pandas as pd

from analysis.plots.figure import Figure
from analysis.table import first_of
from analysis.topics.convergence import curves
from analysis.topics.topic import MOST_DRAWN, Sweep, Topic


def figure(of: Sweep) -> Figure | None:
    return curves.figure(of.frames.epochs, curves.LOSS, of.seen, _smoothed(of.runs))


def _smoothed(runs: pd.DataFrame) -> str:
    """Whose loss has another floor than that of the others."""
    labels = runs.loc[runs["label_smoothing"] > 0, "technique_label"]
    names = first_of(list(dict.fromkeys(labels)), MOST_DRAWN)
    return f"Against smoothed labels, so never near 0: {names}." if names else ""


TOPIC = Topic(plots=(figure,))
