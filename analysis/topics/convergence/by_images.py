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

from analysis.figures import Figure, Look, left_out, looks
from analysis.plots.lines import Axis, Line, lines
from analysis.records.frames import in_order
from analysis.records.labels import without_ends
from analysis.stats.intervals import estimate, t_quantile
from analysis.table import (
    Column,
    Estimate,
    Row,
    Table,
    count,
    frame,
    number,
    plain_rows,
    significant,
)
from analysis.topics.topic import NAMES, place_namer

LEAST_SIZES, MOST_LINES = 3, 12
SEVERAL = "runs of one number of images took several numbers of steps"
NO_ERROR = (
    "{} of {} runs make no error, which has no logarithm; a law without them would be too high"
)
_SERIES = ["technique", "technique_label", "line", "gpus", "global_batch"]
_SIZES = (" of the data", " epochs")  # in a context: what sets the number of images


def _steps(row: Row) -> str:
    low, high = count(row["steps_low"]), count(row["steps_high"])
    return low if low == high else f"{low} to {high}"


COLUMNS = (
    *NAMES,
    Column("global_batch", "Int64", "global batch", only_if_varied=True),
    Column("gpus", "Int64", "ranks", only_if_varied=True),
    Column("sizes", "Int64", "sizes", "numbers of training images, the smallest and the largest",
           cell=lambda row: f"{row['sizes']}, {count(row['images_low'])} to "
                            f"{count(row['images_high'])}"),
    Column("images_low", "Int64"),
    Column("images_high", "Int64"),
    Column("steps_low", "Int64", "steps", "of a run; where they differ, more images have had more "
           "training, too", cell=_steps),
    Column("steps_high", "Int64"),
    Column("n", "Int64", "runs", "completed"),
    Column("exponent", "Float64", "exponent", "b of error = a n^b, with its 95 % interval over "
           "numbers of images", format=number(3), estimate=True),
    Column("factor", "Float64", description="a of error = a n^b"),
)  # fmt: skip


def table(runs: pd.DataFrame, techniques: Sequence[str]) -> Table:
    """One row per technique and settings with LEAST_SIZES numbers of training images or more."""
    known = points(runs)
    rows = [_row(own) for _, own in known.groupby(_SERIES, sort=False, dropna=False)]
    return Table(
        "error_by_images",
        "Error against the number of training images",
        COLUMNS,
        in_order(frame(rows, COLUMNS), techniques),
    )


def points(runs: pd.DataFrame) -> pd.DataFrame:
    """Completed runs without a target of series with enough sizes, with their ``error`` and
    ``line``: the context without what sets the sizes."""
    of = (runs["status"] == "completed") & runs["target"].isna()
    known = runs[of & runs["validation_accuracy"].notna()]
    known = known.assign(
        error=1 - known["validation_accuracy"],
        line=[without_ends(context, *_SIZES) for context in known["context"]],
    )
    series = known.groupby(_SERIES, sort=False, dropna=False)
    return known[series["train_images"].transform("nunique") >= LEAST_SIZES]


def _row(own: pd.DataFrame) -> Row:
    first = own.iloc[0]
    exponent, factor = _law(own)
    return {
        **{name: first[name] for name in ("technique", "technique_label", "gpus", "global_batch")},
        "context": first["line"], "sizes": own["train_images"].nunique(),
        "images_low": own["train_images"].min(), "images_high": own["train_images"].max(),
        "steps_low": own["steps"].min(), "steps_high": own["steps"].max(),
        "n": len(own), **exponent.columns("exponent"), "factor": factor,
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


def figure(runs: pd.DataFrame, fitted: pd.DataFrame) -> Figure | None:
    """A dot per run and the law of each row of the table; None without one."""
    every = plain_rows(fitted[fitted["exponent"].notna()])
    laws = every[:MOST_LINES]
    if not laws:
        return None
    known = points(runs)
    seen = looks([*map(place_namer(fitted), laws)])
    drawn = [part for row, (name, look) in zip(laws, seen.items(), strict=True)
             for part in _lines(row, known, name, look)]  # fmt: skip
    svg = lines(
        {"": drawn}, Axis("training images", "octaves"),
        Axis("validation error", "decades", at=(1, 1.5, 2, 3, 4, 5, 6, 8)),
    )  # fmt: skip
    return Figure(
        "error_by_images",
        _title(laws),
        "One dot per completed run; lines: error = a n^b, fitted. Both axes are logarithmic."
        + left_out(len(laws), len(every), "lines; the CSV has all"),
        known[[*_SERIES, "cell_id", "seed", "train_images", "steps", "error"]],
        svg,
    )


def _lines(row: Row, known: pd.DataFrame, name: str, look: Look) -> tuple[Line, Line]:
    """The law, and a dot for each of its runs."""
    same = {**{key: row[key] for key in ("technique_label", "gpus", "global_batch")},
            "line": row["context"] or ""}  # fmt: skip
    own = known[(known[list(same)] == pd.Series(same)).all(axis=1)]
    ends = np.geomspace(row["images_low"], row["images_high"], 2)
    tips = [
        f"{count(run['train_images'])} images, seed {run['seed']}: error "
        f"{significant(run['error'])}"
        for run in plain_rows(own)
    ]
    return (
        Line(ends, row["factor"] * ends ** row["exponent"], look, name, size=0),
        Line(own["train_images"], own["error"], look, width=0, tips=tips),
    )


def _title(laws: Sequence[Row]) -> str:
    low, high = (pick(row["exponent"] for row in laws) for pick in (min, max))
    found = f"{low:.2f}" if len(laws) == 1 else f"{low:.2f} to {high:.2f}"
    return f"Error goes as the number of images to the power of {found}"
