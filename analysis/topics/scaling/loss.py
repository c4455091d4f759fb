"""Lost efficiency explained: by which part a step is longer than the ideal one.

A step on k ranks is compared with that of the smallest measured count k0 of its series, scaled to
the images a rank has: ideal(k) = f x step(k0), with f = 1 under weak and k0 / k under strong
scaling. Each part is ``part(k) - f x part(k0)``, as a share of the ideal step. They add up exactly
to ``step(k) / ideal(k) - 1``, since per run, with means over its ranks:

    step_s = input_s + compute_s + exposed_s + rest

- input: ``input_s``, waiting for the batch.
- compute: ``compute_fastest_s``, that of the rank that computes fastest, the optimizer's update
  included.
- waiting: ``waiting_s``, for slower ranks, at most ``exposed_s``; and ``compute_s`` less
  ``compute_fastest_s``: else half of a straggler's delay among two ranks would be slow computing.
- negotiation: ``negotiation_s``; at most what is then left of ``exposed_s``.
- exposed: communication that overlaps no computing, without the two parts above.
- rest: what remains, and may be negative. ``compute_s`` and ``waiting_s`` are of sampled steps,
  ``step_s`` and ``input_s`` of all others, ``exposed_s`` is a difference of medians; steps
  that are taken in one call save what a sampled one has to pay. All of this is in it.

One rank alone waits for no other: its exposed, waiting and negotiation are 0. Runs without
``waiting_s`` keep it within communication. Where runs have no ``exposed_s`` (as the slowest of a
world's ranks, whose communication is all hidden), the rest holds the other communication, and a
note says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import fmt
from analysis.records.columns import SHARED_CORES
from analysis.stats.differences import differences
from analysis.stats.intervals import Floats, Moments, grouped_moments
from analysis.table import Column, Table, estimate_in, estimates_as, frame
from analysis.topics.names import NAMES, ranks_column
from analysis.topics.scaling.series import by_series
from analysis.topics.topic import Sweep

#: The parts in the order in which they are drawn, and how a sentence names them.
PARTS: dict[str, str] = {
    "input": "waiting for input",
    "compute": "computing",
    "communication": "communication with waiting for slower ranks",
    "exposed": "exposed communication",
    "waiting": "waiting for slower ranks",
    "negotiation": "negotiation",
    "rest": "unexplained time",
}
UNDECIDED = "undecided"
SAMPLED_LONGER = "a sampled step computes longer than others last: read computing and rest together"
_COMMUNICATION = ("exposed_s", "waiting_s", "negotiation_s")
#: Decimals of a share of a step: less is the rounding of a sum.
_DECIMALS = 12


def largest_cause(row: Mapping[str, Any]) -> str:
    """Of a row of ``plain_rows`` the part with the largest share of all that lengthens the step,
    decided where its interval is above that of the next; empty where nothing is lost, or nothing is
    known of it."""
    # value, low, high; NaN where there is none, which no comparison holds for
    lost, *every = (np.array(estimate_in(row, name)[:3], float) for name in ("lost", *PARTS))
    parts = {part: one for part, one in zip(PARTS, every, strict=True) if one[0] > 0}
    if not parts or lost[0] <= 0 or lost[1] <= 0:
        return ""
    first = max(parts, key=lambda part: parts[part][0])
    low = parts[first][1]
    # also of a part that seems to shorten the step; without an interval runs do not differ in it
    larger = [part for part, (value, _, high) in zip(PARTS, every, strict=True)
              if part != first and (high >= low or (value > 0 and np.isnan(high)))]  # fmt: skip
    if larger or not low > 0:
        return UNDECIDED
    share = parts[first][0] / sum(value for value, *_ in parts.values())
    return f"{PARTS[first]}, {fmt.percent(share)} of all that lengthens the step"


def _part(name: str, heading: str, description: str) -> Column:
    return Column(name, "Float64", heading, description, format=fmt.signed_percent, estimate=True)


def _columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    return (
        *NAMES,
        Column("series", "Int64"),
        Column("scaling", "string", "scaling", only_if_varied=True),
        replace(ranks_column(runs), only_if_varied=False),
        Column("global_batch", "Int64", "global batch", only_if_varied=True),
        Column("baseline_gpus", "Int64", "compared with", "the smallest measured count of the "
               "series"),
        Column("n", "Int64", "runs"),
        Column("step_s", "Float64", "step", "median over steps, mean over ranks and runs", "s"),
        Column("ideal_s", "Float64", "ideal step", "the baseline's, for the images that a rank has",
               "s"),
        _part("lost", "lost", "step over ideal step, minus 1; parts are shares of the ideal step, "
              "too"),
        _part("input", "input", "waiting for the batch"),
        _part("compute", "compute", "forward, backward and update, of the rank that computes "
              "fastest"),
        _part("communication", "communication", "exposed; waiting for slower ranks is in it"),
        _part("exposed", "exposed communication", "overlaps no computing; without what follows"),
        _part("waiting", "waiting", "for slower ranks"),
        _part("negotiation", "negotiation", "one round of all ranks"),
        _part("rest", "rest", "what the parts do not explain; may be negative"),
        Column("largest", None, "largest loss", cell=largest_cause, wide=True),
        Column("why", "string", "note", only_if_varied=True, wide=True),
    )  # fmt: skip


def losses(of: Sweep) -> Table:
    """A row per series and count but the smallest, of completed runs with a step time."""
    runs = of.made(by_series)
    columns = _columns(runs)
    data = frame(_rows(*_pairs(timed(runs))), columns)
    known = tuple(c for c in columns if not c.estimate or data[c.name].notna().any())
    return Table("lost_efficiency", "What is lost, and by what", known, data)


def timed(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that completed, with a step time."""
    return runs[(runs["status"] == "completed") & runs["step_s"].notna()]


def _pairs(used: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row per pair of a count and the smallest of its series, in the order of their numbers; and
    the runs of both, with the number of their ``pair``."""
    used = used.assign(baseline_gpus=used.groupby("series")["gpus"].transform("min"))
    at_base = used["gpus"] == used["baseline_gpus"]
    more, base = used[~at_base], used[at_base]
    pairs = more.drop_duplicates(["series", "gpus"]).sort_values(["series", "gpus"])
    pairs = pairs.assign(pair=range(len(pairs)))
    own = more.merge(pairs[["series", "gpus", "pair"]], on=["series", "gpus"])
    beside = base.merge(pairs[["series", "pair"]], on="series")
    return pairs, pd.concat([own.assign(is_base=False), beside.assign(is_base=True)])


def _rows(pairs: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Columns of the table; see :func:`_pairs`."""
    pair, base, count = runs["pair"].to_numpy(int), runs["is_base"].to_numpy(bool), len(pairs)

    def both(values: Floats) -> list[Moments]:
        """Of the count and of its baseline."""
        return [grouped_moments(values[at], pair[at], count) for at in (~base, base)]

    def means(values: Floats) -> list[Floats]:
        return [one.mean for one in both(values)]

    step, images = (runs[name].to_numpy(float) for name in ("step_s", "global_batch"))
    step_s, step_0 = means(step)
    each, each_0 = means(images / runs["gpus"].to_numpy(float))
    ideal = each / each_0 * step_0
    shared = runs["oversubscribed"].fillna(False).astype(bool).groupby(pair).any().to_numpy(bool)
    parts = parts_of(runs, pair)
    found: dict[str, Any] = {}
    for name, values in {"lost": step, **parts}.items():
        known = np.where(shared[pair], np.nan, values)
        more, fewest = means(known)
        share = np.round(more / ideal - fewest / step_0, _DECIMALS)
        # the uncertainty of the ideal step is in the interval (delta method)
        linear = np.where(base, (known + share[pair] * step) / step_0[pair], known / ideal[pair])
        about = differences(*both(np.round(linear, _DECIMALS)))
        about = about.assign(value=share, low=share + about["low"], high=share + about["high"])
        about["note"] = about["note"].where(~np.isnan(share))
        found |= estimates_as(name, about)
    longer = np.greater(means(parts["compute"]), [step_s, step_0]).any(axis=0)
    lacks = np.isnan([means(parts[name])[0] for name in ("exposed", "communication")]).all(axis=0)
    told = runs["step_parts_why"].groupby(pair).first()
    no_time = told.map("the rest holds what else communication takes: {}".format)
    why = np.select([shared, lacks, longer],
                    [SHARED_CORES, no_time, SAMPLED_LONGER], "")  # fmt: skip
    names = ("technique", "technique_label", "series", "scaling", "gpus", "global_batch",
             "baseline_gpus")  # fmt: skip
    return {
        **{name: pairs[name].array for name in names},
        "context": pairs["series_context"].array,
        "n": np.bincount(pair[~base], minlength=count),
        "step_s": step_s, "ideal_s": ideal, **found, "why": pd.Series(why).replace("", pd.NA).array,
    }  # fmt: skip


def parts_of(runs: pd.DataFrame, group: NDArray[Any]) -> dict[str, Floats]:
    """Seconds of the parts of each run; NaN where some run of its group lacks one, which is then
    within the rest. ``group``: its number of each run."""
    names = ("step_s", "input_s", "compute_s", "compute_fastest_s", *_COMMUNICATION)
    real = {name: runs[name].to_numpy(float, na_value=np.nan) for name in names}
    for name in _COMMUNICATION:
        real[name] = np.where(runs["gpus"] == 1, 0.0, real[name])
    shown, skew = real["exposed_s"], real["compute_s"] - real["compute_fastest_s"]
    waited = np.minimum(real["waiting_s"], shown)
    negotiated = np.minimum(real["negotiation_s"], shown - waited)
    shows, waits = (
        pd.Series(~np.isnan(values)).groupby(group).transform("all").to_numpy(bool)
        for values in (shown, real["waiting_s"] + real["negotiation_s"])
    )
    found = {
        "input": real["input_s"],
        "compute": real["compute_fastest_s"],
        "communication": np.where(shows & ~waits, shown + skew, np.nan),
        "exposed": np.where(shows & waits, shown - waited - negotiated, np.nan),
        "waiting": np.where(waits, np.where(shows, waited, real["waiting_s"]) + skew, np.nan),
        "negotiation": np.where(shows & waits, negotiated, np.nan),
    }
    return found | {"rest": real["step_s"] - np.nansum([*found.values()], axis=0)}
