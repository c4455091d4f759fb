"""The tables of a run, for terminal and page alike."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.interconnect.collectives import (
    LARGE,
    collectives_frame,
    fitted,
    misses,
    shape_of,
    summary_frame,
)
from analysis.interconnect.figures import square
from analysis.interconnect.finding import Verdict, bits, seconds, size
from analysis.interconnect.run import Run, pairs_frame
from analysis.prediction.alpha_beta import WORST
from analysis.table import Column, Estimate, Row, Table, frame
from train.interconnect.collectives.record import WAYS, Collectives
from train.interconnect.record import Tournament


def tables_of(run: Run) -> list[Table]:
    if run.collectives is None:
        return []
    model = _model(run.collectives)
    return [_collectives(run.collectives), *([model] if len(model.data) else [])]


_COLLECTIVES = (
    Column("operation", "string", "collective", format=lambda name: name.replace("_", "-")),
    Column("place", "string", "place"),
    Column("mode", "string", "mode"),
    Column("bytes", "Int64", "size", format=size),
    Column("busbw_raw", heading="sockets", format=bits),
    Column("busbw_horovod", heading="Horovod", format=bits),
    Column("ratio", heading="ratio", format=fmt.number(2)),
    Column("median_s_raw", heading="small, sockets", format=seconds),
    Column("median_s_horovod", heading="small, Horovod", format=seconds),
)


def _collectives(collectives: Collectives) -> Table:
    data = summary_frame(collectives_frame(collectives), len(collectives.ranks))
    intro = (
        f"{shape_of(collectives)}, {collectives.dtype}. Bus bandwidth at the largest size that "
        "both ways reached in time, of the median call, slowest rank; small: the smallest size. In "
        "place: within Horovod's fusion buffer, or of a variable. blocked and pipelined are not to "
        "be compared with each other."
    )
    return Table("collectives", "Collectives", _COLLECTIVES, data, intro)


_MODEL = (
    Column("way", "string", "way"),
    Column("alpha", heading="alpha (95 %)", format=seconds, estimate=True),
    # where beta is too small to be seen beside alpha, B has no upper end
    Column("bandwidth", heading="B (95 %)", estimate=True,
           format=lambda rate: bits(rate) if math.isfinite(rate) else "∞"),
    Column("worst_residual", heading="worst residual", format=fmt.percent),
    Column("ranks", "Int64", "ranks"),
    Column("median_error", heading="median error", format=fmt.signed_percent),
    Column("worst_error", heading="worst error", format=fmt.signed_percent),
)  # fmt: skip


def _model(collectives: Collectives) -> Table:
    """Fitted on two ranks, tried on more; a row without ranks where there are no more."""
    rows: list[Row] = []
    for way in WAYS:
        if (own := fitted(collectives, way)) is None:
            continue
        # the faster end of beta is the larger bandwidth
        betas = (own.large.link.beta, *reversed(own.large.beta_interval))
        value, low, high = (8 / beta if beta else math.inf for beta in betas)
        bandwidth = Estimate(value, low, high)
        alpha = Estimate(own.large.link.alpha, *own.large.alpha_interval)
        fit = {"way": way, "worst_residual": own.worst,
               **alpha.columns("alpha"), **bandwidth.columns("bandwidth")}  # fmt: skip
        rows += [
            {**fit, "ranks": ranks, "median_error": np.median(errors),
             "worst_error": max(errors, key=abs)}
            for ranks, errors in misses(collectives, way, own).items()
        ] or [fit]  # fmt: skip
    intro = (
        "All-reduce in place, blocked, as a ring: alpha and 1 / B fitted to 2 ranks, weight "
        "1 / T², apart for small and large messages where one line does not hold for "
        f"both (shown: large), tried on more ranks from {size(LARGE)} on. error: measured over "
        "predicted, minus one. A model, not a measurement; a fit that misses a size by more "
        f"than {WORST:.0%} is not to be extrapolated."
    )
    return Table("model", "Fitted and predicted", _MODEL, frame(rows, _MODEL), intro)


_FINDINGS = (
    Column("weight", "string", "weight"),
    Column("what", "string", "what"),
    Column("place", "string", "where"),
    Column("ratio", heading="ratio", format=lambda share: "" if pd.isna(share) else f"{share:.2f}"),
    Column("evidence", "string", "evidence", wide=True),
)


def findings_table(verdict: Verdict) -> Table:
    rows = [{**asdict(f), "place": " to ".join(f.nodes) or "the run"} for f in verdict.findings]
    intro = (
        "fault: the network's, seen again alone. open: this run cannot decide. remark: good to "
        "know, no reason to act."
    )
    return Table("findings", "Findings", _FINDINGS, frame(rows, _FINDINGS), intro)


def rates_table(tournament: Tournament) -> Table:
    """Row sends, column receives; empty: not measured, none: nothing came through."""
    pairs = pairs_frame(tournament).query("phase == 'tournament'")
    names = [node.name for node in tournament.nodes]
    rates = pairs["rate"].astype(float)
    unit, one = ("Gbit/s", 1e9) if rates.dropna().median() >= 1e9 else ("Mbit/s", 1e6)
    texts = rates.map(lambda rate: "none" if pd.isna(rate) else f"{rate / one:.1f}")
    wide = square(pairs, names, texts).fillna("").add_prefix("to ")
    columns = (
        Column("sender", "string", "sends"),
        *(Column(f"to {name}", heading=name, format=str) for name in names),
    )
    return Table("rates", f"{unit}, row sends, column receives", columns, wide.reset_index())
