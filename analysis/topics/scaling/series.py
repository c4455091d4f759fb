"""Which runs are one scaling series: those that only ranks, nodes and seeds tell apart."""

from __future__ import annotations

import pandas as pd

from analysis.table import Column, Names, plain_rows
from analysis.topics.names import NAMES, cores_text, mode
from analysis.topics.topic import Sweep

#: What must be equal for one rank count to be the baseline of another, beside settings and batch.
SAME = ("dataset", "image_size", "model", "width", "shortcuts", "pretrained", "data_fraction",
        "partition", "framework", "epoch_images", "deterministic", "accumulation", "scaling",
        "device_kind", "device")  # fmt: skip
#: What names a series. A global batch belongs to it, too.
SERIES: tuple[Column, ...] = (
    *NAMES,
    Column("series", "Int64"),
    Column("scaling", "string", "mode", "weak: the batch per rank is fixed; strong: the global "
           "batch is", cell=mode),
    Column("batch_per_rank", "Int64"),
)  # fmt: skip


def by_series(of: Sweep) -> pd.DataFrame:
    """Runs with the number of their ``series``: those that only ranks, nodes and seeds tell apart.
    What differs between series beside the settings joins the ``context``."""
    runs = of.runs
    weak = runs["scaling"] == "weak"
    same = runs[[*SAME, "technique_settings"]].assign(
        batch=runs["batch_per_rank"].where(weak, runs["global_batch"]),
        cores=runs["cores_per_rank"].where(runs["device_kind"] == "cpu"),  # a GPU needs none
    )
    numbers = same.groupby(list(same), sort=False, dropna=False, observed=True).ngroup()
    more = _beside_settings(same.assign(context=runs["context"])[~numbers.duplicated()])
    both = zip(runs["context"], numbers, strict=True)
    context = [Names((*own, *more[number])) for own, number in both]
    return runs.assign(series=numbers, context=pd.Series(context, runs.index, dtype=object))


def _beside_settings(series: pd.DataFrame) -> list[list[str]]:
    """Per series, in their order: its device, its cores and the batches of a step, as they vary."""
    told = series.assign(
        devices=series["device"].nunique() > 1,
        several=series.groupby("device")["cores"].transform("nunique") > 1,
        batches=series.groupby(["scaling", "batch"])["accumulation"].transform("nunique") > 1,
    )
    found = []
    for row in plain_rows(told):
        accumulation = f"accumulation {row['accumulation']}"
        more = row["batches"] and row["accumulation"] > 1 and accumulation not in row["context"]
        parts = [row["device"] if row["devices"] else "",
                 cores_text(row["cores"]) if row["several"] else "",
                 accumulation if more else ""]  # fmt: skip
        found.append([part for part in parts if part])
    return found
