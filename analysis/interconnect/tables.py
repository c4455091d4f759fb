"""The tables of a run, ready to be shown: headings and rows of text, for terminal and page."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.interconnect.bandwidth import collectives_frame, summary_frame
from analysis.interconnect.foretold import (
    LARGE,
    all_reduce_times,
    fitted,
    foretold_frame,
    separate,
)
from analysis.interconnect.nodes import differences
from analysis.interconnect.run import Run
from analysis.interconnect.units import bits, seconds, size
from analysis.model.fit import WORST
from analysis.model.segments import Segments
from train.interconnect.collectives.record import WAYS, Collectives
from train.interconnect.record import Tournament


class View(NamedTuple):
    key: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables_of(run: Run) -> list[View]:
    found = []
    if run.collectives is not None:
        found += [_collectives(run.collectives), *_model(run.collectives)]
    if run.facts:
        found.append(_nodes(run))
    if run.tournament is not None and run.tournament.calibrated:
        found.append(_calibrated(run.tournament))
    return found


def _collectives(found: Collectives) -> View:
    frame = summary_frame(collectives_frame(found), len(found.ranks))
    rows = tuple(_collective(row) for row in frame.to_dict("records"))
    caption = (
        f"{len(found.ranks)} ranks on {found.nodes} nodes, {found.controller} controller, "
        f"{found.dtype}. Bus bandwidth at the largest size that both ways reached in time, of the "
        "median call, slowest rank; small: the smallest size. In place: within Horovod's fusion "
        "buffer, or of a variable. blocked and pipelined are not to be compared with each other."
    )
    columns = ("collective", "place", "mode", "size", "sockets", "Horovod", "ratio",
               "small, sockets", "small, Horovod")  # fmt: skip
    return View("collectives", "Collectives", caption, columns, rows)


def _collective(row: dict[Hashable, Any]) -> tuple[str, ...]:
    return (
        row["operation"].replace("_", "-"), row["place"], row["mode"], size(row["bytes"]),
        bits(row["raw_busbw"]), bits(row["horovod_busbw"]), f"{row['horovod_over_raw']:.2f}",
        seconds(row["raw_small_s"]), seconds(row["horovod_small_s"]),
    )  # fmt: skip


def _model(found: Collectives) -> Iterator[View]:
    rows = []
    for way in WAYS if separate(found) else ():
        own = fitted(all_reduce_times(found, way))
        if own is None:
            continue
        frame = foretold_frame(found, way)
        large = frame[frame["bytes"] >= LARGE]
        for ranks, part in large.groupby("ranks"):
            rows.append((way, *_fit(own), f"{ranks}", *_errors(part)))
        if large.empty:
            rows.append((way, *_fit(own), "", "", ""))
    if rows:
        caption = (
            "All-reduce in place, blocked, as a ring: alpha and 1 / B fitted to 2 ranks, weight "
            "1 / T\u00b2, apart for small and large messages where one line does not hold for "
            f"both (shown: large), tried on more ranks from {size(LARGE)} on. error: measured over "
            "predicted, minus one. A model, not a measurement; a fit that misses a size by more "
            f"than {WORST:.0%} is not to be extrapolated."
        )
        columns = ("way", "alpha (95 %)", "B (95 %)", "worst residual", "ranks", "median error",
                   "worst error")  # fmt: skip
        yield View("model", "Fitted and foretold", caption, columns, tuple(rows))


def _fit(own: Segments) -> tuple[str, str, str]:
    large = own.large
    low, high = large.alpha_interval
    alpha = f"{seconds(large.link.alpha)} ({seconds(low)} to {seconds(high)})"
    worst = f"{own.worst:.0%}" + ("" if own.is_usable else ", not to be extrapolated")
    if large.link.beta == 0:
        return alpha, "not seen", worst
    # the faster end of beta is the larger bandwidth
    slow, fast = large.beta_interval[1], large.beta_interval[0]
    width = f"{bits(8 / large.link.beta)} ({bits(8 / slow)} to {bits(8 / fast) if fast else 'any'})"
    return alpha, width, worst


def _errors(part: pd.DataFrame) -> tuple[str, str]:
    errors, sizes = part["error"].to_numpy(), part["bytes"].to_numpy()
    worst = int(np.argmax(np.abs(errors)))
    return f"{np.median(errors):+.0%}", f"{errors[worst]:+.0%} at {size(sizes[worst])}"


def _nodes(run: Run) -> View:
    rows = tuple(
        (d.group, d.name, d.usual, "; ".join(f"{node}: {value}" for node, value in
                                            sorted(d.others.items())))
        for d in differences(run.facts)
    )  # fmt: skip
    nodes = len({one.node for one in run.facts})
    unknown = sorted({
        fact.name for one in run.facts if one.when == "before" for fact in one.facts
        if fact.value is None
    })  # fmt: skip
    caption = f"What {nodes} nodes say of themselves where they do not agree." + (
        f" Not known, so not judged: {', '.join(unknown)}." if unknown else ""
    )
    columns = ("group", "fact", "most nodes", "others")
    return View("differences", "Differences between nodes", caption, columns, rows)


def _calibrated(found: Tournament) -> View:
    rows = tuple(
        (
            "none" if row.share == 1 else f"one node at {row.share:g}",
            "" if row.share == 1 else f"{row.named} of {row.trials}",
            f"{row.wrong} of {row.trials}",
        )
        for row in found.calibrated
    )
    caption = (
        f"Simulated networks of {len(found.nodes)} nodes with the noise that was measured, through "
        "the same decisions. Congestion, routing and faults that come and go are not simulated."
    )
    columns = ("fault", "named right", "named wrong")
    return View("calibration", "How often this would be right", caption, columns, rows)
