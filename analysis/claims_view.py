"""The comparisons with the reference as a table for a reader."""

from __future__ import annotations

import pandas as pd

from analysis.display import (
    Column,
    Notes,
    Row,
    Table,
    count,
    interval,
    joined,
    plain_rows,
    text,
    with_context,
)
from analysis.tables import ranks_column


def claims_view(table: pd.DataFrame, runs: pd.DataFrame, reference: str | None) -> Table:
    """Each technique against the reference at the largest rank count both have."""
    notes = Notes()
    family = int(table["family"].iloc[0]) if len(table) else 0
    columns = (
        Column("technique", "left"),
        Column("against", "left"),
        ranks_column(runs),
        Column("global batch"),
        Column("runs", about="of the technique / of the reference, diverged ones included"),
        Column("difference", about="in validation accuracy (fraction, not per cent) over all runs, "
               "a diverged one counting as chance"),
        Column("95 % interval", about="Welch's t, for this comparison alone"),
        Column("p (Holm)", about=f"two-sided Welch p, adjusted by Holm's method for {family} "
               "planned comparison(s); the verdict uses it at 0.05"),
        Column("verdict", "left"),
        Column("runs per arm to decide", about="with power 0.8, were the observed difference and "
               "spread the true ones; alone at 0.05 / at the strictest level of the family"),
    )  # fmt: skip
    rows = tuple(_claim_row(row, notes) for row in plain_rows(table))
    return Table(
        "claims",
        f"Claims: techniques against {reference or 'a reference'}",
        columns,
        rows,
        notes.lines(),
        intro="One planned family: every technique against the reference at the largest rank "
        "count that both have, and there at the largest batch. Every other comparison of rows in "
        "this report is exploratory and uncorrected.",
        empty="The sweep has one technique: there is nothing to compare.",
    )


def _claim_row(row: Row, notes: Notes) -> tuple[str, ...]:
    # no break between the word and its mark
    verdict = joined([str(row["verdict"]), notes.mark(row["why"])], "\u00a0")
    bounded = not pd.isna(row["difference_low"])
    counted = not pd.isna(row["n"])
    return (
        with_context(row),
        text(row["reference"]),
        count(row["gpus"]),
        count(row["global_batch"]),
        f"{row['n']} / {row['n_reference']}" if counted else "n/a",
        "n/a" if pd.isna(row["difference"]) else f"{row['difference']:+.3f}",
        interval(row["difference_low"], row["difference_high"], 3) if bounded else "n/a",
        "n/a" if pd.isna(row["p_holm"]) else p_value(row["p_holm"]),
        verdict,
        _seeds(row, notes),
    )


def _seeds(row: Row, notes: Notes) -> str:
    if row["verdict"] != "inconclusive":
        return "" if row["verdict"] in ("higher", "lower") else "n/a"
    if pd.isna(row["seeds_in_family"]):
        return notes.missing(row["seeds_why"])
    return f"{count(row['seeds_alone'])} / {count(row['seeds_in_family'])}"


def p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
