"""The tables and figures of a run, for terminal and page: who reaches what with whom, collectives
over their size beside what such links should give, and every finding."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pandas as pd

from analysis import fmt
from analysis.interconnect.collectives import FITTED, collectives_frame, fitted, shape_of
from analysis.interconnect.finding import Verdict, bits, seconds, size
from analysis.interconnect.links import line_of
from analysis.interconnect.run import Run, pairs_frame
from analysis.plots.figure import Figure, looks
from analysis.plots.lines import Axis, Line, lines
from analysis.plots.matrix import squares
from analysis.prediction.alpha_beta import WORST
from analysis.table import Column, Estimate, Row, Table, frame
from train.interconnect.collectives.record import WAYS, Collectives
from train.interconnect.record import Tournament

#: All sizes are fitted; from this one on bandwidth decides the time, and errors are shown.
LARGE = 1 << 16
_FAINTEST = 0.08  # so that it is no empty square
_PAIRS = ["sender", "receiver", "rate", "error"]
_CALLS = ["way", "operation", "place", "mode", "ranks", "bytes", "median_s", "busbw"]
#: Of a line, what collectives usually reach (ml-engineering by S. Bekman).
_COLLECTIVE = 0.80


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
    Column("ratio", heading="ratio", format=fmt.TWO),
    Column("median_s_raw", heading="small, sockets", format=seconds),
    Column("median_s_horovod", heading="small, Horovod", format=seconds),
)


def _collectives(collectives: Collectives) -> Table:
    """Of all ranks; the largest size that both ways reached, and the smallest size's times."""
    keys = ["operation", "place", "mode", "bytes"]
    calls = collectives_frame(collectives)
    of_all = calls[calls["ranks"] == len(collectives.ranks)]
    raw, horovod = (of_all.loc[of_all["way"] == way, [*keys, "busbw", "median_s"]] for way in WAYS)
    # a merge keeps the order of its left side: series as they were measured, sizes going up
    both = raw.merge(horovod, on=keys, suffixes=("_raw", "_horovod"))
    by = both.groupby(keys[:-1], sort=False)
    data = by.last().assign(**by.first()[["median_s_raw", "median_s_horovod"]]).reset_index()
    data["ratio"] = data["busbw_horovod"] / data["busbw_raw"]
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
    calls, rows = collectives_frame(collectives), list[Row]()
    calls = calls.query("operation == 'all_reduce' and place == 'in' and mode == 'blocked'")
    calls = calls[(calls["ranks"] > FITTED) & (calls["bytes"] >= LARGE)]
    for way in WAYS:
        if (own := fitted(collectives, way)) is None:
            continue
        # the faster end of beta is the larger bandwidth
        betas = (own.large.beta, *reversed(own.beta_interval))
        value, low, high = (8 / beta if beta else math.inf for beta in betas)
        bandwidth = Estimate(value, low, high)
        alpha = Estimate(own.large.alpha, *own.alpha_interval)
        fit = {"way": way, "worst_residual": own.worst,
               **alpha.columns("alpha"), **bandwidth.columns("bandwidth")}  # fmt: skip
        tried = calls[calls["way"] == way]
        predicted = [
            own.seconds(*call) for call in zip(tried["ranks"], tried["bytes"], strict=True)
        ]
        errors = (tried["median_s"] / predicted - 1).groupby(tried["ranks"])
        rows += [
            {**fit, "ranks": ranks, "median_error": one.median(), "worst_error": max(one, key=abs)}
            for ranks, one in errors
        ] or [fit]
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
    """Leaf by leaf; empty: not measured, none: nothing came through."""
    rates, failed = _square(tournament, "rate"), _square(tournament, "samples") == 0
    unit, one = ("Gbit/s", 1e9) if rates.stack().median() >= 1e9 else ("Mbit/s", 1e6)
    texts = (rates / one).map("{:.1f}".format, na_action="ignore").astype("string")
    columns = (
        Column("sender", "string", "sends"),
        *(Column(f"to {name}", heading=name, format=str) for name in map(str, rates)),
    )
    data = texts.mask(failed, "none").fillna("").add_prefix("to ").reset_index()
    return Table("rates", f"{unit}, row sends, column receives", columns, data)


def _square(tournament: Tournament, column: str) -> pd.DataFrame:
    """Of pairs_frame, row sends, column receives; NaN: not measured, or no value."""
    pairs = pairs_frame(tournament).query("phase == 'tournament'")
    last = pairs.drop_duplicates(["sender", "receiver"], keep="last")
    names = [node.name for node in tournament.nodes]
    names.sort(key=lambda name: tournament.switches.get(name, ""))
    wide = last.pivot(index="sender", columns="receiver", values=column)
    return wide.reindex(index=names, columns=names).astype(float)


def figures_of(run: Run, line_bits: float | None = None) -> list[Figure]:
    """line_bits: of the links, where it is known from elsewhere than the nodes."""
    figures = []
    if run.tournament is not None and run.tournament.decision.middle is not None:
        figures.append(_heatmap(run.tournament, run.tournament.decision.middle))
    if run.collectives is not None:
        figures.append(_curves(run.collectives, line_bits or line_of(run.facts)))
    return [figure for figure in figures if figure.svg is not None]


def _heatmap(tournament: Tournament, middle: float) -> Figure:
    shares = _square(tournament, "rate") / middle
    failed = _square(tournament, "samples").to_numpy() == 0
    texts = shares.map("{:.2f}".format).to_numpy().tolist()
    hatched = {(int(a), int(b)) for a, b in np.argwhere(failed)}
    fills = (1 - shares).clip(_FAINTEST, 1).to_numpy()
    return Figure(
        "rates", "Who reaches what with whom",
        "Rate as a share of the median node's, row sends, column receives. A row or "
        "column in full colour is a node's direction, a square a link. Colour: full at 0, faint "
        "from the median on. Hatched: nothing came through; empty: not measured.",
        pairs_frame(tournament).query("phase == 'tournament'")[_PAIRS],
        squares(fills, texts, [*shares], hatched, "sends", "receives"),
    )  # fmt: skip


def _curves(collectives: Collectives, line: float | None) -> Figure:
    """Of all ranks, out of place. line: of the links, bit/s, to draw beside."""
    levels = [("line", line), ("80 % of it", _COLLECTIVE * line)] if line else []
    calls = collectives_frame(collectives).query("place == 'out' and mode == 'pipelined'")
    own = calls[calls["ranks"] == len(collectives.ranks)]
    colours = looks(list(dict.fromkeys(own["operation"])))
    drawn = [
        Line(rows["bytes"], rows["busbw"],
             replace(colours[str(operation)], dashes="-" if way == "horovod" else "--"),
             str(operation).replace("_", "-") if way == "horovod" else "", size=2.5)
        for (operation, way), rows in own.groupby(["operation", "way"], sort=False)
    ]  # fmt: skip
    x, y = Axis("size", "octaves", size), Axis("bus bandwidth", "decades", bits)
    return Figure(
        "bandwidth", "Bandwidth of collectives",
        "Bus bandwidth, calls back to back, median: algorithm bandwidth times the factor of "
        "nccl-tests, so that it can be held against a link's rate. Solid: Horovod; dashed: plain "
        "sockets between the same ranks. Small messages may pass a shaper or a switch's buffer at "
        "once, and then show more than the line.",
        own[_CALLS], lines({"": drawn}, x, y, levels=levels) if drawn else None,
    )  # fmt: skip
