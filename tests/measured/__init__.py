"""What docs/results.md shows of the records in docs/measured: `python -m tests.measured` prints its
tables and draws its figures; a test compares both. Figures that no report needs are made here."""

from tests.measured.page import (
    DRAWN,
    FIGURES,
    MEASURED,
    PAGE,
    PAIRS,
    ROOT,
    figures,
    frames_of,
    headline,
    noise_growth,
    side_by_side,
    sweeps,
    table,
)

__all__ = [
    "DRAWN",
    "FIGURES",
    "MEASURED",
    "PAGE",
    "PAIRS",
    "ROOT",
    "figures",
    "frames_of",
    "headline",
    "noise_growth",
    "side_by_side",
    "sweeps",
    "table",
]
