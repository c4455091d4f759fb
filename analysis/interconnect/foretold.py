"""The all-reduce fitted on few ranks and tried on more: what the model is worth here."""

from __future__ import annotations

import pandas as pd

from analysis.model.costs import ring
from analysis.model.fit import Timed
from analysis.model.segments import Segments, fit_segments, foretell
from train.interconnect.collectives.record import Collectives, Way

#: All sizes are fitted; from this one on bandwidth decides the time, and errors are told apart.
LARGE = 1 << 16


def all_reduce_times(found: Collectives, way: Way) -> tuple[Timed, ...]:
    """Blocked, in place: as gradients are reduced."""
    return tuple(
        Timed(series.ranks, point.bytes, point.seconds)
        for series in found.series
        if (series.way, series.operation, series.place, series.mode)
        == (way, "all_reduce", "in", "blocked")
        for point in series.points
    )


def separate(found: Collectives) -> bool:
    """Whether the first ranks are on nodes of their own; else a fit to them is of memory."""
    return len(found.ranks) == found.nodes


def fitted(timed: tuple[Timed, ...], ranks: int = 2) -> Segments | None:
    """A ring's alpha and beta from the times of ``ranks`` ranks; None: there are too few."""
    own = [t for t in timed if t.ranks == ranks]
    return fit_segments(own, ring) if len(own) > 1 else None


def foretold_frame(found: Collectives, way: Way, ranks: int = 2) -> pd.DataFrame:
    """Fitted on ``ranks`` ranks, one row per size of more ranks: bytes, ranks, measured_s,
    predicted_s, error (measured over predicted, minus one)."""
    timed = all_reduce_times(found, way)
    own = fitted(timed, ranks) if separate(found) else None
    rows = [] if own is None else foretell(own, [t for t in timed if t.ranks > ranks])
    frame = pd.DataFrame(
        [(f.ranks, f.bytes, f.measured, f.predicted, f.error) for f in rows],
        columns=["ranks", "bytes", "measured_s", "predicted_s", "error"],
    )
    return frame.sort_values(["ranks", "bytes"]).reset_index(drop=True)
