"""Collectives: bandwidths and times as frames, fit and prediction, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.interconnect.finding import Finding
from analysis.prediction.alpha_beta import Fit, Timed, fit
from analysis.table import Column, Row, frame
from train.config.frozen import Frozen
from train.interconnect.collectives.record import WAYS, Collectives, Point, Series, Way, factor

_SERIES = ("way", "operation", "place", "mode")
COLLECTIVES = (
    *(Column(name, "string") for name in _SERIES),
    *(Column(name, "Int64") for name in ("ranks", "bytes", "calls", "wrong")),
    *(Column(name) for name in ("median_s", "min_s", "p95_s", "max_s", "algbw", "busbw")),
)
FITTED = 2  # ranks
#: Headers add to what is sent; less means that it went another way.
CARRIED = 0.99


def collectives_frame(collectives: Collectives) -> pd.DataFrame:
    """One row per series and size, columns COLLECTIVES: seconds of one call, slowest rank; bit/s.

    algbw is S / t of the median call, busbw algbw times the factor of nccl-tests.
    """
    rows = [_row(series, point) for series in collectives.series for point in series.points]
    return frame(rows, COLLECTIVES)


def _row(series: Series, point: Point) -> Row:
    fastest, median, p95, slowest = np.percentile(point.seconds, (0, 50, 95, 100))
    algorithm = 8 * point.bytes / median
    return {
        **{name: getattr(series, name) for name in (*_SERIES, "ranks")},
        **{name: getattr(point, name) for name in ("bytes", "calls", "wrong")},
        "median_s": median, "min_s": fastest, "p95_s": p95, "max_s": slowest,
        "algbw": algorithm, "busbw": algorithm * factor(series.operation, series.ranks),
    }  # fmt: skip


def through_ports(collectives: Collectives) -> bool | None:
    """Whether Horovod's collectives went through InfiniBand ports; None: these were not counted,
    or ranks share them."""
    counted = [
        s for s in collectives.series if s.way == "horovod" and s.payload_bytes and not s.error
    ]
    sent = [c.port_sent_bytes for s in counted for c in s.carried]
    known = [count for count in sent if count is not None]
    if not known or len(known) < len(sent) or len(collectives.ranks) > collectives.nodes:
        return None
    return sum(known) > sum(s.payload_bytes for s in counted) / 2


def fitted(collectives: Collectives, way: Way, ranks: int = FITTED) -> Fit | None:
    """A ring's alpha and beta from the times of ``ranks`` ranks, blocked, in place, as gradients
    are reduced; None: there are too few, or ranks share a node, and a fit would be of its memory.
    """
    own = [
        Timed(s.ranks, point.bytes, point.seconds)
        for s in collectives.series
        if (s.way, s.operation, s.place, s.mode, s.ranks)
        == (way, "all_reduce", "in", "blocked", ranks)
        for point in s.points
    ]
    alone = len(collectives.ranks) == collectives.nodes
    return fit(own) if alone and len(own) > 1 else None


class SeriesTimes(Frozen):
    """A series of all ranks. seconds: bytes -> of the median call; a slow one has fewer sizes."""

    name: str
    way: Way
    seconds: dict[int, float]


def shape_of(collectives: Collectives) -> str:
    ranks = f"{len(collectives.ranks)} ranks on {collectives.nodes} nodes"
    return f"{ranks}, {collectives.controller} controller"


def series_now(collectives: Collectives) -> tuple[SeriesTimes, ...]:
    return tuple(
        SeriesTimes(
            name=f"{s.operation} {s.place} {s.mode}", way=s.way,
            seconds={point.bytes: float(np.median(point.seconds)) for point in s.points},
        )
        for s in collectives.series
        if s.ranks == len(collectives.ranks) and s.points
    )  # fmt: skip


def title(series: Series) -> str:
    operation = series.operation.replace("_", "-")
    return f"{operation} {series.way} {series.place} {series.mode} {series.ranks} ranks"


def series_findings(series: Series) -> Iterator[Finding]:
    wrong = {point.bytes: point.wrong for point in series.points if point.wrong}
    if wrong:
        sizes = ", ".join(map(str, wrong))
        why = f"{title(series)}: {sum(wrong.values())} wrong elements at {sizes} bytes"
        yield Finding("fault", "corrupt", f"{why}, expected none")
    if series.error:
        yield Finding("open", "collective", f"{title(series)}: {series.error}")


def collectives_findings(collectives: Collectives) -> Iterator[Finding]:
    for series in collectives.series:
        yield from series_findings(series)
    if len(collectives.series) < collectives.planned:
        why = f"{len(collectives.series)} of {collectives.planned} series were measured"
        yield Finding("open", "not measured", why)
    yield from _elsewhere(collectives)
    if collectives.oversubscribed:
        why = "ranks share cores: times of collectives hold waiting for a core"
        yield Finding("remark", "oversubscribed", why)


def _elsewhere(collectives: Collectives) -> Iterator[Finding]:
    """Whether what the ranks must send together went through the interface, or InfiniBand ports.

    Together, because an algorithm need not send equally much from every rank.
    """
    if len(collectives.ranks) > collectives.nodes:
        why = "ranks of one node bypass its interface, so counters do not prove the way taken"
        yield Finding("remark", "interface", why)
        return
    sent = [s for s in collectives.series if s.payload_bytes and not s.error]
    counted = [s for s in sent if all(c.sent_bytes is not None for c in s.carried)]
    if len(counted) < len(sent):
        why = "byte counters could not be read during the collectives: no proof of the way taken"
        yield Finding("open", "interface", why)
    for way in WAYS:
        shares = (sum((c.sent_bytes or 0) + (c.port_sent_bytes or 0) for c in series.carried)
                  / series.payload_bytes for series in counted if series.way == way)  # fmt: skip
        share = min(shares, default=1.0)
        if share < CARRIED:
            why = (f"collectives by {way}: interfaces carried {share:.0%} of what must be sent: it "
                   "took another way, or RDMA that nothing counts here")  # fmt: skip
            yield Finding("open", "interface", why)
    if through_ports(collectives):
        why = "Horovod's collectives went through the InfiniBand ports, plain sockets' did not"
        yield Finding("remark", "RDMA", why)
