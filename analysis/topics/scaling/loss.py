"""Lost efficiency explained: by which part a step is longer than the ideal one.

A step on k ranks is compared with that of the smallest measured count k0 of its series, scaled to
the images a rank has: ideal(k) = f x step(k0), with f = 1 under weak and k0 / k under strong
scaling. Each part is ``part(k) - f x part(k0)``, in seconds. They add up exactly to
``step(k) - ideal(k)``, since per run, with means over its ranks:

    step_s = input_s + compute_s + exposed_s + rest

- input: ``input_s``, waiting for the batch.
- compute: ``compute_fastest_s``, that of the rank that computes fastest, the optimizer's update
  included.
- waiting: ``waiting_s``, for slower ranks, at most ``exposed_s``; and ``compute_s`` less
  ``compute_fastest_s``: else half of a straggler's delay among two ranks would be slow computing.
- negotiation: ``negotiation_s``; at most what is then left of ``exposed_s``.
- exposed: communication that overlaps no computing, without the two parts above. With a ``Link``
  of the same nodes it is divided into bandwidth and latency, in the proportion that a ring has in
  the alpha-beta model: a model, no measurement.
- rest: what remains, and may be negative. ``compute_s`` and ``waiting_s`` are of sampled steps,
  ``step_s`` and ``input_s`` of all others, ``exposed_s`` is a difference of medians; steps
  that are taken in one call save what a sampled one has to pay. All of this is in it.

One rank alone waits for no other: its exposed, waiting and negotiation are 0. Runs without
``waiting_s`` keep it within communication. Where runs have no ``exposed_s`` (as the slowest of a
world's ranks, whose communication is all hidden), the rest holds the other communication, and a
note says why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.prediction.collectives import Link
from analysis.records.columns import SHARED_CORES
from analysis.stats.differences import welch
from analysis.stats.intervals import IDENTICAL, ONE_RUN, Moments
from analysis.table import Column, Row, Table, signed_percent, types
from analysis.topics.names import ranks_column
from analysis.topics.scaling.cause import MODELLED, PARTS, largest_cause
from analysis.topics.scaling.series import by_series, with_series
from analysis.topics.scaling.step_parts import ABOUT, SOURCES, VALUES, per_run
from analysis.topics.topic import Sweep

KEY, TITLE = "lost_efficiency", "What is lost, and by what"
SAMPLED_LONGER = "a sampled step computes longer than others last: read computing and rest together"
_ROUNDING = 1e-12  # relative
Floats = npt.NDArray[np.float64]


class Loss(NamedTuple):
    """table: a row per condition with more ranks than its baseline. parts: see PART_COLUMNS.
    what: ranks, or GPUs where each rank has one."""

    table: Table
    parts: pd.DataFrame
    what: str


def _largest(row: Row) -> str:
    cause = largest_cause(row)
    return "" if cause is None else cause.text


def _part(name: str, heading: str, description: str) -> Column:
    return Column(
        name, heading=heading, description=description, estimate=True, format=signed_percent
    )


COLUMNS: tuple[Column, ...] = (
    Column("series", "Int64", description="one number per series, as in the parts"),
    Column("technique", "string"),
    Column("technique_label", "string", "technique"),
    Column("context", "string", "settings", only_if_varied=True),
    Column("scaling", "string", "scaling", only_if_varied=True),
    Column("gpus", "Int64", "ranks"),
    Column("global_batch", "Int64", "global batch", only_if_varied=True),
    Column("baseline_gpus", "Int64", "compared with", "the smallest measured count of the series"),
    Column("n", "Int64", "runs"),
    Column("step_s", heading="step", unit="s",
           description="median over steps, mean over ranks and runs"),
    Column("ideal_s", heading="ideal step", unit="s",
           description="the baseline's, for the images that a rank has"),
    _part("lost", "lost", "step over ideal step, minus 1; parts are shares of the ideal step, too"),
    _part("input", "input", "waiting for the batch"),
    _part("compute", "compute", "forward, backward and update, of the rank that computes fastest"),
    _part("communication", "communication", "exposed; waiting for slower ranks is in it"),
    _part("exposed", "exposed communication", "overlaps no computing; without what follows"),
    _part("bandwidth", "bandwidth (model)", "exposed communication, by the bytes of a ring"),
    _part("latency", "latency (model)", "exposed communication, by the messages of a ring"),
    _part("waiting", "waiting", "for slower ranks"),
    _part("negotiation", "negotiation", "one round of all ranks"),
    _part("rest", "rest", "what the parts do not explain; may be negative"),
    Column("largest", None, "largest loss", cell=_largest, wide=True),
    Column("why", "string", "note", only_if_varied=True, wide=True),
)  # fmt: skip
PART_COLUMNS: tuple[Column, ...] = (
    Column("series", "Int64"),
    Column("condition", "string", description="technique and settings"),
    Column("scaling", "string"),
    Column("gpus", "Int64"),
    Column("baseline_gpus", "Int64"),
    Column("part", "string", description="see PARTS"),
    Column("seconds", unit="s", description="per step, above the ideal one"),
    Column("low", unit="s", description="95 % interval over runs (Welch's t)"),
    Column("high", unit="s"),
    Column("share", description="of the ideal step"),
    Column("n", "Int64", description="runs at this count"),
    Column("model", "boolean", description="divided by a model, not measured"),
    Column("note", "string"),
)


def loss(runs: pd.DataFrame, network: Link | None = None) -> Loss:
    """
    Args:
        runs: a row per run: the columns of analysis.frames, and per run in seconds, null where a
            record has none, ``step_s``, ``input_s``, ``compute_s``, ``compute_fastest_s``,
            ``communication_s``, ``exposed_s``, ``waiting_s``, ``negotiation_s``; and
            ``step_parts_why``. Only completed runs with a step time are used.
        network: of the nodes of all runs; applied to runs whose ``gradient_bytes`` are known.
    """
    used = with_series(runs)[(runs["status"] == "completed") & runs["step_s"].notna()]
    compared = _compared(_groups(per_run(used, network)))
    long = _parts_of(compared)
    wide = _wide(compared, long)
    ranks = replace(ranks_column(runs), only_if_varied=False)
    columns = tuple(
        ranks if c.name == "gpus" else c
        for c in COLUMNS
        if not c.estimate or wide[c.name].notna().any()
    )
    table = Table(KEY, TITLE, columns, wide)
    parts = long[long["part"] != "lost"].copy()
    parts["condition"] = [
        ", ".join([label, *context])
        for label, context in zip(parts["technique_label"], parts["context"], strict=True)
    ]
    wanted = types(PART_COLUMNS)
    return Loss(table, parts[list(wanted)].astype(wanted).reset_index(drop=True), ranks.heading)


def lost(of: Sweep) -> Loss:
    return loss(of.made(by_series), of.network)


def losses(of: Sweep) -> Table:
    return of.made(lost).table


def _groups(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per (series, gpus): NAME, NAME_var and NAME_cov (with the step) of each part.

    A mean is null unless every run has the value, so that all parts are of the same runs.
    """
    by = [runs["series"], runs["gpus"]]
    values = runs[VALUES]
    grouped = values.groupby(by)
    away = values - grouped.transform("mean")
    n = grouped.size()
    freedom = (n - 1).where(n > 1)
    squares = away.pow(2).groupby(by).sum(min_count=1).div(freedom, axis=0)
    products = away.mul(away["step_s"], axis=0).groupby(by).sum(min_count=1).div(freedom, axis=0)
    whole = grouped.count().eq(n, axis=0)
    first = runs.groupby(by)[["technique", "technique_label", "context", "scaling", "global_batch"]]
    flags = runs.groupby(by).agg(
        shared=("oversubscribed", "any"), no_parts=("step_parts_why", "first")
    )
    return pd.concat(
        [grouped.mean().where(whole), squares.add_suffix("_var"), products.add_suffix("_cov"),
         first.first(), flags, n.rename("n")], axis=1,
    ).reset_index()  # fmt: skip


def _compared(groups: pd.DataFrame) -> pd.DataFrame:
    """Each condition beside its baseline (``NAME_0``), with ``f`` and ``level``."""
    smallest = groups.sort_values("gpus").drop_duplicates("series")
    smallest = smallest.drop(columns=["technique", "technique_label", "context", "scaling"])
    pair = groups.merge(smallest, on="series", suffixes=("", "_0"))
    pair = pair[pair["gpus"] > pair["gpus_0"]].reset_index(drop=True)
    pair["f"] = ((pair["global_batch"] / pair["gpus"]) /
                 (pair["global_batch_0"] / pair["gpus_0"])).astype(float)  # fmt: skip
    has = {
        level: np.logical_and.reduce(
            [pair[c].notna() & pair[f"{c}_0"].notna() for c in sources.values()]
        )
        for level, sources in SOURCES.items()
    }
    pair["level"] = np.select(list(has.values()), list(has), "nothing")
    shared = (pair["shared"] | pair["shared_0"]).fillna(False).astype(bool)
    longer = [pair[f"fastest_s{end}"] > pair[f"step_s{end}"] for end in ("", "_0")]
    told = pair["no_parts"].fillna(pair["no_parts_0"]).fillna("these runs do not have it")
    pair["why"] = np.select(
        [shared, pair["level"] == "communication", ~pair["level"].isin(("modelled", "full")),
         longer[0] | longer[1]],
        [SHARED_CORES, "waiting for slower ranks is within communication",
         told.map("the rest holds what else communication takes: {}".format), SAMPLED_LONGER], "",
    )  # fmt: skip
    pair["level"] = pair["level"].where(~shared, "")
    pair["ideal_s"] = pair["f"] * pair["step_s_0"]
    return pair


def _parts_of(pair: pd.DataFrame) -> pd.DataFrame:
    """A row per condition and part, ``lost`` (the whole difference) among them."""
    pieces = [
        _difference(pair[pair["level"] == level], part, column)
        for level, sources in SOURCES.items()
        for part, column in {"lost": "step_s", **sources}.items()
    ]
    long = pd.concat(pieces)
    place = {part: i for i, part in enumerate(("lost", *PARTS))}
    return long.assign(_p=long["part"].map(place)).sort_values(["series", "gpus", "_p"])


def _difference(pair: pd.DataFrame, part: str, column: str) -> pd.DataFrame:
    """part(k) - f part(k0), and as a share of the ideal step, with Welch's t intervals.

    The share's interval has the uncertainty of the ideal step in it (delta method).
    """
    f, ideal, step, variance_of_step = (
        pair[name].to_numpy(float) for name in ("f", "ideal_s", "step_s_0", "step_s_var_0")
    )
    n, mean, variance = (pair[c].to_numpy(float) for c in ("n", column, f"{column}_var"))
    n_0, mean_0, variance_0, covariance = (
        pair[c].to_numpy(float)
        for c in ("n_0", f"{column}_0", f"{column}_var_0", f"{column}_cov_0")
    )
    share = (mean - f * mean_0) / ideal
    both = variance_0 + share**2 * variance_of_step + 2 * share * covariance
    sd, sd_0 = _sd(variance, ideal), _sd(variance_0, step)
    seconds = welch(Moments(n, mean, sd), Moments(n_0, f * mean_0, f * sd_0))
    shares = welch(
        Moments(n, mean / ideal, sd / ideal), Moments(n_0, mean_0 / step, _sd(both, step) / step)
    )
    notes = {
        name: np.select([np.minimum(n, n_0) < 2, np.isnan(of.low)], [ONE_RUN, IDENTICAL], "")
        for name, of in {"note": seconds, "share_note": shares}.items()
    }
    return pd.DataFrame({
        **{name: pair[name] for name in ("series", *ABOUT, "n")},
        "baseline_gpus": pair["gpus_0"], "part": part,
        "seconds": seconds.value, "low": seconds.low, "high": seconds.high,
        "share": shares.value, "share_low": shares.low, "share_high": shares.high,
        "model": part in MODELLED,
        **{name: pd.Series(note, pair.index).replace("", pd.NA) for name, note in notes.items()},
    })  # fmt: skip


def _sd(variance: Floats, step: Floats) -> Floats:
    """Standard deviation; 0 where it is the rounding of such a step."""
    sd = np.sqrt(np.maximum(variance, 0))
    return np.where(sd <= _ROUNDING * step, 0.0, sd)


def _wide(pair: pd.DataFrame, long: pd.DataFrame) -> pd.DataFrame:
    """A row per condition, shares of the ideal step as estimates."""
    at = long.set_index(["series", "gpus", "part"])
    named = {"share": "", "share_low": "_low", "share_high": "_high", "n": "_n",
             "share_note": "_note"}  # fmt: skip
    shares = [at[source].unstack("part").add_suffix(suffix) for source, suffix in named.items()]
    known = pair.rename(columns={"gpus_0": "baseline_gpus"}).set_index(["series", "gpus"])
    known["why"] = known["why"].replace("", pd.NA)
    about = ["technique", "technique_label", "context", "scaling", "global_batch", "baseline_gpus",
             "n", "step_s", "ideal_s", "why"]  # fmt: skip
    wide = pd.concat([known[about], *shares], axis=1).reset_index()
    wanted = types(COLUMNS)
    return wide.reindex(columns=list(wanted)).astype(wanted)
