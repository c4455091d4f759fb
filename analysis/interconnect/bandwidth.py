"""Collectives as tables: algorithm and bus bandwidth, spread of times, Horovod's overhead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.interconnect.finding import Finding
from train.interconnect.collectives.record import WAYS, Collectives, Point, Series, factor

#: From so many samples on the 99th percentile is another one than the largest.
ENOUGH_FOR_P99 = 100
#: Headers add to what is sent; less means that it went another way.
CARRIED = 0.99
_SERIES = ["way", "operation", "place", "mode", "ranks"]


def collectives_frame(found: Collectives) -> pd.DataFrame:
    """One row per series and size. Seconds; bit/s; bytes.

    algbw is S / t of the median call, busbw algbw times the factor of nccl-tests. nicbw is what
    leaves a node of it per rank, for k nodes of g ranks, n in all: busbw (k - 1) / (n - 1) where
    ranks of a node reduce first (ml-engineering by S. Bekman), and g times that for all-to-all,
    where nothing is reduced. With one rank per node it is busbw. A flat ring, as Gloo's, sends
    busbw from each node instead, whatever g is.
    """
    rows = [_row(series, point, found) for series in found.series for point in series.points]
    columns = [*_SERIES, "bytes", "calls", "median_s", "min_s", "p95_s", "p99_s", "max_s", "mad_s",
               "cv", "algbw", "busbw", "nicbw", "wrong"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def _row(series: Series, point: Point, found: Collectives) -> dict[str, object]:
    seconds = np.array(point.seconds)
    median = float(np.median(seconds))
    algorithm = 8 * point.bytes / median
    bus = algorithm * factor(series.operation, series.ranks)
    per_node = len(found.ranks) / found.nodes
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


def summary_frame(frame: pd.DataFrame, ranks: int) -> pd.DataFrame:
    """One row per operation, place and mode of all ranks: the largest size that both ways reached,
    bus bandwidth of each there, Horovod's over the plain sockets', and the smallest size's times.
    """
    keys = ["operation", "place", "mode", "bytes"]
    whole = frame[frame["ranks"] == ranks]
    ways = [whole.loc[whole["way"] == way, [*keys, "busbw", "median_s"]] for way in WAYS]
    # a merge keeps the order of its left side: series as they were measured, sizes going up
    both = ways[0].merge(ways[1], on=keys, suffixes=("_raw", "_horovod"))
    by = both.groupby(keys[:-1], sort=False)
    large, small = by.last(), by.first()
    found = large.rename(columns={"busbw_raw": "raw_busbw", "busbw_horovod": "horovod_busbw"})
    found = found[["bytes", "raw_busbw", "horovod_busbw"]]
    found["horovod_over_raw"] = found["horovod_busbw"] / found["raw_busbw"]
    for way in WAYS:
        found[f"{way}_small_s"] = small[f"median_s_{way}"]
    return found.reset_index()


def series_findings(series: Series) -> Iterator[Finding]:
    wrong = sum(point.wrong for point in series.points)
    name = f"{series.operation} by {series.way}, {series.place} of place, {series.mode}"
    if wrong:
        sizes = [str(point.bytes) for point in series.points if point.wrong]
        yield Finding(weight="fault", what="corrupt",
                      evidence=f"{name}: {wrong} wrong elements at {', '.join(sizes)} bytes, "
                      "expected none")  # fmt: skip
    if series.error:
        yield Finding(weight="open", what="collective", evidence=f"{name}: {series.error}")


def collectives_findings(found: Collectives) -> Iterator[Finding]:
    for series in found.series:
        yield from series_findings(series)
    if len(found.series) < found.planned:
        why = f"{len(found.series)} of {found.planned} series were measured"
        yield Finding(weight="open", what="not measured", evidence=why)
    yield from _elsewhere(found)
    if found.oversubscribed:
        why = "ranks share cores: times of collectives hold waiting for a core"
        yield Finding(weight="remark", what="oversubscribed", evidence=why)


def _elsewhere(found: Collectives) -> Iterator[Finding]:
    """Whether what the ranks must send together went through the interface, or InfiniBand ports.

    Together, because an algorithm need not send equally much from every rank.
    """
    if len(found.ranks) > found.nodes:
        why = "ranks of one node talk past its interface, so their way is not proven by counters"
        yield Finding(weight="remark", what="interface", evidence=why)
        return
    whole = [s for s in found.series if s.payload_bytes and not s.error]
    counted = [s for s in whole if all(c.sent_bytes is not None for c in s.carried)]
    if len(counted) < len(whole):
        why = "byte counters could not be read during the collectives: no proof of the way taken"
        yield Finding(weight="open", what="interface", evidence=why)
    shares = {way: min((_carried(s) for s in counted if s.way == way), default=1.0) for way in WAYS}
    for way, share in shares.items():
        if share < CARRIED:
            yield Finding(
                weight="open", what="interface",
                evidence=f"collectives by {way}: the interfaces carried {share:.0%} of what the "
                "ranks must send: the traffic takes another way, or RDMA that nothing counts here",
            )  # fmt: skip
    if through_ports(found):
        why = "Horovod's collectives went through the InfiniBand ports, plain sockets' did not"
        yield Finding(weight="remark", what="RDMA", evidence=why)


def through_ports(found: Collectives) -> bool | None:
    """Whether Horovod's collectives went through InfiniBand ports; None: these were not counted,
    or ranks share them."""
    counted = [s for s in found.series if s.way == "horovod" and s.payload_bytes and not s.error]
    sent = [c.port_sent_bytes for s in counted for c in s.carried]
    known = [count for count in sent if count is not None]
    if not known or len(known) < len(sent) or len(found.ranks) > found.nodes:
        return None
    return sum(known) > sum(s.payload_bytes for s in counted) / 2


def _carried(series: Series) -> float:
    sent = sum((c.sent_bytes or 0) + (c.port_sent_bytes or 0) for c in series.carried)
    return sent / series.payload_bytes
