"""The tables of a run, for terminal and page alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from analysis.interconnect.collectives import (
    LARGE,
    collectives_frame,
    fitted,
    predicted_frame,
    shape_of,
    summary_frame,
)
from analysis.interconnect.facts import differences
from analysis.interconnect.finding import Verdict, bits, seconds, size
from analysis.interconnect.run import Run
from analysis.prediction.alpha_beta import WORST, Segments
from analysis.table import Column, Estimate, Row, Table, frame, number
from train.interconnect.collectives.record import WAYS, Collectives
from train.interconnect.facts.record import NodeFacts
from train.interconnect.record import Tournament


def tables_of(run: Run) -> list[Table]:
    tables = []
    if run.collectives is not None:
        tables += [_collectives(run.collectives), *_model(run.collectives)]
    if run.facts:
        tables.append(_differences(run.facts))
    if run.tournament is not None and run.tournament.calibrated:
        tables.append(_calibrated(run.tournament))
    return tables


_COLLECTIVES = (
    Column("operation", "string", "collective", format=lambda name: name.replace("_", "-")),
    Column("place", "string", "place"),
    Column("mode", "string", "mode"),
    Column("bytes", "Int64", "size", format=size),
    Column("raw_busbw", heading="sockets", format=bits),
    Column("horovod_busbw", heading="Horovod", format=bits),
    Column("horovod_over_raw", heading="ratio", format=number(2)),
    Column("raw_small_s", heading="small, sockets", format=seconds),
    Column("horovod_small_s", heading="small, Horovod", format=seconds),
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


def _percent(value: Any) -> str:
    return "" if pd.isna(value) else f"{value:+.0%}"


def _worst_error(row: Row) -> str:
    if row["worst_error"] is None:
        return ""
    return f"{_percent(row['worst_error'])} at {size(row['worst_error_bytes'])}"


_MODEL = (
    Column("way", "string", "way"),
    Column("alpha", heading="alpha (95 %)", format=seconds, estimate=True),
    # the faster end of beta may be 0
    Column("bandwidth", heading="B (95 %)", estimate=True,
           format=lambda rate: bits(rate) if math.isfinite(rate) else "any"),
    Column("worst_residual", heading="worst residual", format=lambda share: f"{share:.0%}",
           note="worst_residual_note"),
    Column("worst_residual_note", "string"),
    Column("ranks", "Int64", "ranks", format=lambda n: "" if pd.isna(n) else f"{n}"),
    Column("median_error", heading="median error", format=_percent),
    Column("worst_error"),
    Column("worst_error_bytes", "Int64"),
    Column("worst", None, "worst error", cell=_worst_error),
)  # fmt: skip


def _model(collectives: Collectives) -> Iterator[Table]:
    """Fitted on two ranks, tried on more; a row without ranks where there are no more."""
    rows: list[Row] = []
    for way in WAYS:
        own = fitted(collectives, way)
        if own is None:
            continue
        predicted = predicted_frame(collectives, way)
        large = predicted[predicted["bytes"] >= LARGE]
        rows += [{"way": way, **_fit(own), **_errors(part)} for _, part in large.groupby("ranks")]
        if large.empty:
            rows.append({"way": way, **_fit(own)})
    if rows:
        intro = (
            "All-reduce in place, blocked, as a ring: alpha and 1 / B fitted to 2 ranks, weight "
            "1 / T\u00b2, apart for small and large messages where one line does not hold for "
            f"both (shown: large), tried on more ranks from {size(LARGE)} on. error: measured over "
            "predicted, minus one. A model, not a measurement; a fit that misses a size by more "
            f"than {WORST:.0%} is not to be extrapolated."
        )
        yield Table("model", "Fitted and predicted", _MODEL, frame(rows, _MODEL), intro)


def _fit(own: Segments) -> Row:
    link = own.large.link
    bandwidth = Estimate(None, note="too high to be seen beside alpha")
    if link.beta > 0:
        # the faster end of beta is the larger bandwidth
        low, high = (8 / beta if beta else math.inf for beta in reversed(own.large.beta_interval))
        bandwidth = Estimate(8 / link.beta, low, high)
    return {
        **Estimate(link.alpha, *own.large.alpha_interval).columns("alpha"),
        **bandwidth.columns("bandwidth"),
        "worst_residual": own.worst,
        "worst_residual_note": None if own.is_usable else "not to be extrapolated",
    }


def _errors(part: pd.DataFrame) -> Row:
    worst = part.iloc[int(part["error"].abs().to_numpy().argmax())]
    return {
        "ranks": worst["ranks"],
        "median_error": part["error"].median(),
        "worst_error": worst["error"],
        "worst_error_bytes": worst["bytes"],
    }


_DIFFERENCES = (
    Column("group", "string", "group"),
    Column("name", "string", "fact"),
    Column("usual", "string", "most nodes"),
    Column("others", "string", "others", wide=True),
)


def _differences(facts: Sequence[NodeFacts]) -> Table:
    rows = [
        {"group": d.group, "name": d.name, "usual": d.usual,
         "others": "; ".join(f"{node}: {value}" for node, value in sorted(d.others.items()))}
        for d in differences(facts)
    ]  # fmt: skip
    unknown = sorted({
        fact.name for one in facts if one.when == "before" for fact in one.facts
        if fact.value is None
    })  # fmt: skip
    intro = f"What {len({one.node for one in facts})} nodes say of themselves where they differ."
    if unknown:
        intro += f" Not known, so not judged: {', '.join(unknown)}."
    return Table("differences", "Differences between nodes", _DIFFERENCES,
                 frame(rows, _DIFFERENCES), intro)  # fmt: skip


_FINDINGS = (
    Column("weight", "string", "weight"),
    Column("what", "string", "what"),
    Column("place", "string", "where"),
    Column("ratio", heading="ratio", format=lambda share: "" if pd.isna(share) else f"{share:.2f}"),
    Column("evidence", "string", "evidence", wide=True),
)
_CALIBRATED = (
    Column("fault", "string", "fault"),
    Column("share"),
    Column("named", "Int64"),
    Column("wrong", "Int64"),
    Column("trials", "Int64"),
    Column("right", None, "named right",
           cell=lambda row: "" if row["share"] == 1 else f"{row['named']} of {row['trials']}"),
    Column("wrongly", None, "named wrong", cell=lambda row: f"{row['wrong']} of {row['trials']}"),
)  # fmt: skip


def findings_table(verdict: Verdict) -> Table:
    rows = [
        {**asdict(finding), "place": " to ".join(finding.nodes) or "the run"}
        for finding in verdict.findings
    ]
    intro = (
        "fault: the network's, seen again alone. open: this run cannot decide. remark: good to "
        "know, no reason to act."
    )
    return Table("findings", "Findings", _FINDINGS, frame(rows, _FINDINGS), intro)


def rates_table(tournament: Tournament) -> Table:
    """Row sends, column receives; empty: not measured, none: nothing came through."""
    measured = {
        (m.sender, m.receiver): float(np.median(m.rates)) if m.rates else None
        for m in tournament.measurements
        if m.phase == "tournament"
    }
    known = [rate for rate in measured.values() if rate is not None]
    unit, size = ("Gbit/s", 1e9) if known and np.median(known) >= 1e9 else ("Mbit/s", 1e6)
    names = [node.name for node in tournament.nodes]

    def column(receiver: str) -> Column:
        def cell(row: Row) -> str:
            pair = row["sends"], receiver
            rate = measured.get(pair)
            return f"{rate / size:.1f}" if rate is not None else "none" if pair in measured else ""

        return Column(f"to {receiver}", heading=receiver, cell=cell)

    columns = (Column("sends", "string", "sends"), *map(column, names))
    rows = [{"sends": a, **{f"to {b}": measured.get((a, b)) for b in names}} for a in names]
    title = f"{unit}, row sends, column receives"
    return Table("rates", title, columns, frame(rows, columns))


def _calibrated(tournament: Tournament) -> Table:
    intro = (
        f"Simulated networks of {len(tournament.nodes)} nodes with the noise that was measured, "
        "through the same decisions. Congestion, routing and faults that come and go are not "
        "simulated."
    )
    rows = [
        {"fault": "none" if row.share == 1 else f"one node at {row.share:g}", **row.model_dump()}
        for row in tournament.calibrated
    ]
    data = frame(rows, _CALIBRATED)
    return Table("calibration", "How often this would be right", _CALIBRATED, data, intro)
