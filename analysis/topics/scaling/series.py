"""Which runs are one scaling series: those that only ranks, nodes and seeds tell apart; and the
rank counts that were planned for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from analysis.records.labels import without_scaling
from analysis.table import Column, Names, plain_rows
from analysis.topics.names import NAMES, cores_text, mode, ranks_text
from analysis.topics.topic import Rows, Sweep

#: Of a config: what must be equal for one rank count to be the baseline of another, beside the
#: settings of the technique and the batch.
SAME = ("dataset", "image_size", "model", "width", "shortcuts", "pretrained", "data_fraction",
        "partition", "framework", "epoch_images", "deterministic", "accumulation",
        "scaling")  # fmt: skip
#: Of a run, likewise; no plan has them.
DEVICE = ("device_kind", "device")
#: What names a series. A global batch belongs to it, too.
SERIES: tuple[Column, ...] = (
    *NAMES,
    Column("series", "Int64"),
    Column("scaling", "string", "mode", "weak: the batch per rank is fixed; strong: the global "
           "batch is", cell=mode),
    Column("batch_per_rank", "Int64"),
)  # fmt: skip
NO_RUN = "no usable run"


class Series(NamedTuple):
    """One scaling series with several planned rank counts.

    rows: of the table of throughputs, ranks rise. baseline: the smallest planned count. missing:
    planned counts without an efficiency, and why. name: empty if there is one series.
    """

    rows: Rows
    baseline: int
    missing: Mapping[int, str]
    name: str

    @property
    def known(self) -> Rows:
        """The rows with an efficiency, of which the first is the measured baseline."""
        return [row for row in self.rows if row["efficiency"] is not None]

    @property
    def most(self) -> int:
        """Ranks of the last efficiency; 0 of none."""
        return int(self.known[-1]["gpus"]) if self.known[1:] else 0

    @property
    def whose(self) -> str:
        return f" with {self.name}" if self.name else ""

    @property
    def gaps(self) -> list[str]:
        """A sentence on what is missing for each reason."""
        said = []
        for why in dict.fromkeys(self.missing.values()):
            *few, last = (str(count) for count, own in self.missing.items() if own == why)
            who = f"{', '.join(few)} and {last} ranks" if few else ranks_text(int(last))
            has = f"{who}{self.whose} {'has' if who == '1 rank' else 'have'} "
            said.append(f"{has}{why if why == NO_RUN else f'no efficiency: {why}'}")
        return said


def by_series(of: Sweep) -> pd.DataFrame:
    """Runs with the number of their ``series``: those that only ranks, nodes and seeds tell apart,
    on one kind of device; and its ``planned`` rank counts, which rise. What differs between series
    beside the settings joins the ``context``; ``series_context`` is what a series has in common."""
    cells = of.frames.planned[of.frames.planned["known"]]
    weak = cells["scaling"] == "weak"
    cells = cells.assign(batch=cells["batch_per_rank"].where(weak, cells["global_batch"]))
    alike = cells.groupby([*SAME, "technique_settings", "batch"], sort=False, dropna=False)
    cells = cells.assign(plan=alike.ngroup()).set_index("cell_id")
    counts = cells.groupby("plan")["gpus"].unique().map(sorted)
    runs = of.runs.join(cells[["plan", "batch"]], on="cell_id")
    runs["cores"] = runs["cores_per_rank"].where(runs["device_kind"] == "cpu")  # a GPU needs none
    same = runs.groupby(["plan", *DEVICE, "cores"], sort=False, dropna=False, observed=True)
    numbers = same.ngroup()
    more = _beside_settings(runs[~numbers.duplicated()])
    context = [Names((*own, *more[at])) for own, at in zip(runs["context"], numbers, strict=True)]
    common: dict[int, Names] = {}
    for at, own in zip(numbers, context, strict=True):
        common[at] = Names(part for part in common.get(at, without_scaling(own)) if part in own)
    texts = numbers.map(lambda at: str(common[at]))
    return runs.assign(
        series=numbers, planned=runs["plan"].map(counts), series_context=texts,
        context=pd.Series(context, runs.index, dtype=object),
    )  # fmt: skip


def _beside_settings(series: pd.DataFrame) -> list[list[str]]:
    """Per series, in their order: its device, its cores and the batches of a step, as they vary."""
    told = series.assign(
        devices=series["device"].nunique() > 1,
        several=series.groupby("device")["cores"].transform("nunique") > 1,
        batches=series.groupby(["scaling", "batch"])["accumulation"].transform("nunique") > 1,
    )
    names = ["device", "cores", "accumulation", "context", "devices", "several", "batches"]
    found = []
    for row in plain_rows(told[names]):
        accumulation = f"accumulation {row['accumulation']}"
        more = row["batches"] and row["accumulation"] > 1 and accumulation not in row["context"]
        parts = [row["device"] if row["devices"] else "",
                 cores_text(row["cores"]) if row["several"] else "",
                 accumulation if more else ""]  # fmt: skip
        found.append([part for part in parts if part])
    return found
