"""Collectives as tables: algorithm and bus bandwidth, spread of times, Horovod's overhead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.interconnect.finding import Finding
from train.collectives.record import WAYS, Collectives, Point, Series, factor

#: From so many samples on the 99th percentile is another one than the largest.
ENOUGH_FOR_P99 = 100
_SERIES = ["way", "operation", "place", "mode", "ranks"]


def collectives_frame(found: Collectives) -> pd.DataFrame:
    """One row per series and size. Seconds; bit/s; bytes.

    algbw is S / t of the median call, busbw algbw times the factor of nccl-tests. nicbw is what one
    node's interface carries of it where g ranks per node reduce hierarchically: busbw (k - 1) /
    (n - 1) for k nodes and n ranks, per rank; with one rank per node it is busbw.
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


def collectives_findings(found: Collectives) -> Iterator[Finding]:
    for series in found.series:
        wrong = sum(point.wrong for point in series.points)
        name = f"{series.operation} by {series.way}, {series.place} of place, {series.mode}"
        if wrong:
            sizes = [str(point.bytes) for point in series.points if point.wrong]
            yield Finding(weight="fault", what="corrupt",
                          evidence=f"{name}: {wrong} wrong elements at {', '.join(sizes)} bytes, "
                          "expected none")  # fmt: skip
        if series.error:
            yield Finding(weight="open", what="collective", evidence=f"{name}: {series.error}")
    yield from _elsewhere(found)
    if found.oversubscribed:
        why = "ranks share cores: times of collectives hold waiting for a core"
        yield Finding(weight="remark", what="oversubscribed", evidence=why)


def _elsewhere(found: Collectives) -> Iterator[Finding]:
    """Series of which less went through the interface than a rank must send and receive."""
    if len(found.ranks) > found.nodes:
        return  # ranks of one node talk past its interface
    low: dict[str, float] = {}
    for series in found.series:
        if series.payload_bytes < 1 or series.operation == "broadcast" or series.error:
            continue  # the last of a chain sends nothing
        for carried in series.carried:
            sent = carried.sent_bytes
            if sent is not None and sent < 0.99 * series.payload_bytes:
                share = sent / series.payload_bytes
                low[carried.host] = min(share, low.get(carried.host, share))
    if low:
        yield Finding(
            weight="open", what="interface", nodes=tuple(sorted(low)),
            evidence=f"the interface carried {min(low.values()):.0%} of what a collective must "
            "send: the traffic takes another way",
        )  # fmt: skip
