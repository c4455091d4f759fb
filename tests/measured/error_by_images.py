"""Validation error against the number of training images: a power law and its exponent.

error = a n^b (Hestness et al. 2017, 1712.00409, section 3), fitted by least squares to the mean log
error of each number of images. Runs of one number share their images, and the law misses them
alike, so that numbers of images are independent and runs are not: the exponent's interval has as
many degrees of freedom as there are numbers of images, less two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from analysis import fmt
from analysis.plots.figure import Figure, Look, left_out, looks
from analysis.plots.lines import Axis, Line, lines
from analysis.records.labels import without
from analysis.stats.intervals import estimate, t_quantile
from analysis.table import Estimate, Row, plain_rows
from analysis.topics.names import place_namer

LEAST_SIZES, MOST_LINES = 3, 12
SEVERAL = "runs of one number of images took several numbers of steps"
NO_ERROR = (
    "{} of {} runs make no error, which has no logarithm; a law without them would be too high"
)
_SERIES = ["technique", "technique_label", "line", "gpus", "global_batch"]
_SIZES = (" of the data", " epoch", " epochs")  # in a context: what sets the number of images


def laws(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per technique and settings with LEAST_SIZES numbers of training images or more: b is
    ``exponent``, an Estimate, and a is ``factor``."""
    series = points(runs).groupby(_SERIES, sort=False, dropna=False)
    return pd.DataFrame([_row(own) for _, own in series])


def points(runs: pd.DataFrame) -> pd.DataFrame:
    """Completed runs without a target of series with enough sizes, with their ``error`` and
    ``line``: the context without what sets the sizes."""
    of = (runs["status"] == "completed") & runs["target"].isna()
    known = runs[of & runs["validation_accuracy"].notna()]
    known = known.assign(
        error=1 - known["validation_accuracy"],
        line=[without(context, *_SIZES) for context in known["context"]],
    )
    series = known.groupby(_SERIES, sort=False, dropna=False)
    return known[series["train_images"].transform("nunique") >= LEAST_SIZES]


def _row(own: pd.DataFrame) -> Row:
    first = own.iloc[0]
    exponent, factor = _law(own)
    return {
        **{name: first[name] for name in ("technique_label", "gpus", "global_batch")},
        "context": first["line"], "sizes": own["train_images"].nunique(), "n": len(own),
        "images_low": own["train_images"].min(), "images_high": own["train_images"].max(),
        **exponent.columns("exponent"), "factor": factor,
    }  # fmt: skip


def _law(own: pd.DataFrame) -> tuple[Estimate, float | None]:
    """b and a."""
    if (own.groupby("train_images")["steps"].nunique() > 1).any():
        return Estimate(None, n=len(own), note=SEVERAL), None
    if none := int((own["error"] <= 0).sum()):
        return Estimate(None, n=len(own), note=NO_ERROR.format(none, len(own))), None
    logs = pd.DataFrame(
        {name: np.log(own[name].astype(float)) for name in ("train_images", "error")}
    )
    means = logs.groupby("train_images")["error"].mean()
    fit = stats.linregress(means.index, means)
    half = float(t_quantile(len(means) - 2)) * fit.stderr
    return estimate(fit.slope, fit.slope - half, fit.slope + half, len(own)), math.exp(
        fit.intercept
    )


def figure(runs: pd.DataFrame) -> Figure | None:
    """A dot per run and the law of each series; None without one."""
    fitted = laws(runs)
    every = [row for row in plain_rows(fitted) if row["exponent"] is not None]
    shown = every[:MOST_LINES]
    if not shown:
        return None
    known = points(runs)
    seen = looks([*map(place_namer(fitted), shown)])
    drawn = [part for row, (name, look) in zip(shown, seen.items(), strict=True)
             for part in _lines(row, known, name, look)]  # fmt: skip
    svg = lines(
        {"": drawn}, Axis("training images", "octaves"),
        Axis("validation error", "decades", at=(1, 1.5, 2, 3, 4, 5, 6, 8)),
    )  # fmt: skip
    return Figure(
        "error_by_images",
        _title(shown),
        "One dot per completed run; lines: error = a n^b, fitted. Both axes are logarithmic."
        + left_out(len(shown), len(every), "lines; the CSV has all"),
        known[[*_SERIES, "cell_id", "seed", "train_images", "steps", "error"]],
        svg,
    )


def _lines(row: Row, known: pd.DataFrame, name: str, look: Look) -> tuple[Line, Line]:
    """The law, and a dot for each of its runs."""
    same = {key: row[key] for key in ("technique_label", "gpus", "global_batch")}
    own = known[(known[list(same)] == pd.Series(same)).all(axis=1)]
    own = own[own["line"].map(lambda line: line == row["context"])]
    ends = np.geomspace(row["images_low"], row["images_high"], 2)
    tips = [
        f"{fmt.count(run['train_images'])} images, seed {run['seed']}: error "
        f"{fmt.significant(run['error'])}"
        for run in plain_rows(own)
    ]
    return (
        Line(ends, row["factor"] * ends ** row["exponent"], look, name, size=0),
        Line(own["train_images"], own["error"], look, width=0, tips=tips),
    )


def _title(shown: Sequence[Row]) -> str:
    low, high = (pick(row["exponent"] for row in shown) for pick in (min, max))
    found = f"{low:.2f}" if len(shown) == 1 else f"{low:.2f} to {high:.2f}"
    return f"Error goes as the number of images to the power of {found}"
