"""Collectives: bandwidths and times as frames, fit and prediction, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.interconnect.finding import Finding
from analysis.prediction.alpha_beta import Segments, Timed, fit_segments
from analysis.table import Column, frame
from train.config.frozen import Frozen
from train.interconnect.collectives.record import WAYS, Collectives, Point, Series, Way, factor

#: From so many samples on the 99th percentile is another one than the largest.
ENOUGH_FOR_P99 = 100
_SERIES = ["way", "operation", "place", "mode", "ranks"]
COLLECTIVES = (
    Column("way", "string", description="horovod, or raw: plain sockets between the same ranks"),
    Column("operation", "string", description="the collective"),
    Column(
        "place", "string", description="in: the result lies where the input was; out: elsewhere"
    ),
    Column("mode", "string", description="blocked: ranks meet before each call; pipelined: not"),
    Column("ranks", "Int64", description="the first so many of the world"),
    Column("bytes", "Int64", unit="B", description="array of one rank, as nccl-tests count it"),
    Column("calls", "Int64", description="timed calls of each rank"),
    Column("median_s", unit="s", description="one call, slowest rank, median"),
    Column("min_s", unit="s", description="fastest call"),
    Column("p95_s", unit="s", description="95th percentile"),
    Column("p99_s", unit="s", description="99th percentile, from 100 samples on"),
    Column("max_s", unit="s", description="slowest call"),
    Column("mad_s", unit="s", description="median absolute deviation from the median"),
    Column("cv", description="standard deviation over mean"),
    Column("algbw", unit="bit/s", description="algorithm bandwidth: bytes over the median"),
    Column("busbw", unit="bit/s", description="bus bandwidth: algbw times nccl-tests' factor"),
    Column("nicbw", unit="bit/s", description="what leaves a node, per rank; see the docstring"),
    Column("wrong", "Int64", description="elements that are not what they must be"),
)
FITTED = 2  # ranks
#: All sizes are fitted; from this one on bandwidth decides the time, and errors are shown.
LARGE = 1 << 16
#: Headers add to what is sent; less means that it went another way.
CARRIED = 0.99


def collectives_frame(collectives: Collectives) -> pd.DataFrame:
    """One row per series and size, columns COLLECTIVES.

    algbw is S / t of the median call, busbw algbw times the factor of nccl-tests. nicbw is what
    leaves a node of it per rank, for k nodes of g ranks, n in all: busbw (k - 1) / (n - 1) where
    ranks of a node reduce first (ml-engineering by S. Bekman), and g times that for all-to-all,
    where nothing is reduced. With one rank per node it is busbw. A flat ring, as Gloo's, sends
    busbw from each node instead, whatever g is.
    """
    rows = [
        _row(series, point, collectives) for series in collectives.series for point in series.points
    ]
    return frame(rows, COLLECTIVES)


def _row(series: Series, point: Point, collectives: Collectives) -> dict[str, object]:
    seconds = np.array(point.seconds)
    median = float(np.median(seconds))
    algorithm = 8 * point.bytes / median
    bus = algorithm * factor(series.operation, series.ranks)
    per_node = len(collectives.ranks) / collectives.nodes
    nodes = -(-series.ranks // per_node)
    share = (nodes - 1) / (series.ranks - 1)
    if series.operation == "all_to_all":
        share *= per_node
    return {
        **{name: getattr(series, name) for name in _SERIES},
        "bytes": point.bytes,
        "calls": point.calls,
        "median_s": median,
        "min_s": float(seconds.min()),
        "p95_s": float(np.percentile(seconds, 95)),
        "p99_s": float(np.percentile(seconds, 99)) if len(seconds) >= ENOUGH_FOR_P99 else None,
        "max_s": float(seconds.max()),
        "mad_s": float(np.median(np.abs(seconds - median))),
        "cv": float(seconds.std() / seconds.mean()),
        "algbw": algorithm,
        "busbw": bus,
        "nicbw": bus * share,
        "wrong": point.wrong,
    }


def summary_frame(calls: pd.DataFrame, ranks: int) -> pd.DataFrame:
    """One row per operation, place and mode of all ranks: the largest size that both ways reached,
    bus bandwidth of each there, Horovod's over the plain sockets', and the smallest size's times.
    """
    keys = ["operation", "place", "mode", "bytes"]
    of_all = calls[calls["ranks"] == ranks]
    ways = [of_all.loc[of_all["way"] == way, [*keys, "busbw", "median_s"]] for way in WAYS]
    # a merge keeps the order of its left side: series as they were measured, sizes going up
    both = ways[0].merge(ways[1], on=keys, suffixes=("_raw", "_horovod"))
    by = both.groupby(keys[:-1], sort=False)
    large, small = by.last(), by.first()
    summary = large.rename(columns={"busbw_raw": "raw_busbw", "busbw_horovod": "horovod_busbw"})
    summary = summary[["bytes", "raw_busbw", "horovod_busbw"]]
    summary["horovod_over_raw"] = summary["horovod_busbw"] / summary["raw_busbw"]
    for way in WAYS:
        summary[f"{way}_small_s"] = small[f"median_s_{way}"]
    return summary.reset_index()


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


def all_reduce_times(collectives: Collectives, way: Way) -> list[Timed]:
    """Blocked, in place: as gradients are reduced."""
    return [
        Timed(series.ranks, point.bytes, point.seconds)
        for series in collectives.series
        if (series.way, series.operation, series.place, series.mode)
        == (way, "all_reduce", "in", "blocked")
        for point in series.points
    ]


def fitted(collectives: Collectives, way: Way, ranks: int = FITTED) -> Segments | None:
    """A ring's alpha and beta from the times of ``ranks`` ranks; None: there are too few, or ranks
    share a node, and a fit would be of its memory."""
    own = [timed for timed in all_reduce_times(collectives, way) if timed.ranks == ranks]
    alone = len(collectives.ranks) == collectives.nodes
    return fit_segments(own) if alone and len(own) > 1 else None


def misses(collectives: Collectives, way: Way) -> pd.DataFrame:
    """``ranks``, ``bytes``, ``error`` (measured over predicted, minus one) of LARGE calls of more
    ranks than were fitted."""
    own = fitted(collectives, way)
    rows = [
        (timed.ranks, timed.bytes, timed.median / own.seconds(timed.ranks, timed.bytes) - 1)
        for timed in all_reduce_times(collectives, way)
        if own is not None and timed.ranks > FITTED and timed.bytes >= LARGE
    ]
    return pd.DataFrame(rows, columns=["ranks", "bytes", "error"])


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
    shares = {way: min((_carried(s) for s in counted if s.way == way), default=1.0) for way in WAYS}
    for way, share in shares.items():
        if share < CARRIED:
            yield Finding(
                "open", "interface",
                f"collectives by {way}: the interfaces carried {share:.0%} of what the "
                "ranks must send: the traffic takes another way, or RDMA that nothing counts here",
            )  # fmt: skip
    if through_ports(collectives):
        why = "Horovod's collectives went through the InfiniBand ports, plain sockets' did not"
        yield Finding("remark", "RDMA", why)


def _carried(series: Series) -> float:
    sent = sum((c.sent_bytes or 0) + (c.port_sent_bytes or 0) for c in series.carried)
    return sent / series.payload_bytes
