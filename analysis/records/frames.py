"""Tidy frames: one row per run, one row per run and epoch, and so on. A null is <NA> with its
reason; analysis/records/columns.py says what each column is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import fmt
from analysis.records.columns import FRAMES, OWN
from analysis.records.gather import Gathered, Problem
from analysis.records.labels import Settings, contexts, technique_labels
from analysis.table import types

_SORTED_BY = ("_place", "technique_label", "context", "gpus", "global_batch")


@dataclass(frozen=True)
class Frames:
    """A sweep as frames; their columns are those of FRAMES in columns.py.

    ``planned`` has a row per planned cell, ``runs`` one per usable run in the order of the plan,
    ``epochs`` one per usable run and epoch, ``classes`` one per usable run and class of its last
    evaluation, ``goals`` one per usable run with a target, ``ranks`` one per usable run and rank.
    """

    folder: Path
    name: str
    title: str
    techniques: tuple[str, ...]  # order of rows in all tables
    planned: pd.DataFrame
    runs: pd.DataFrame
    epochs: pd.DataFrame
    classes: pd.DataFrame
    goals: pd.DataFrame
    ranks: pd.DataFrame
    problems: tuple[Problem, ...]
    unplanned: tuple[str, ...]  # folders with a record that the present plan does not name
    settings: Settings = field(default_factory=dict)
    sites: tuple[str, ...] = ()  # that it was submitted to

    @property
    def results(self) -> Path:
        """The folder with the sweeps' folders."""
        return self.folder if "sweep" in self.planned else self.folder.parent


def labelled(configs: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Configs, a row each, with LABELS: over all of them, so that equal names mean equal things.
    They are null where the config is."""
    known = configs[configs["technique_settings"].notna()]
    labels = known["technique_settings"].map(technique_labels(settings)).astype("string")
    return configs.assign(technique_label=labels, context=contexts(known))


def frames_of(tables: Gathered) -> dict[str, pd.DataFrame]:
    """The frames of the usable cells; ``tables["cells"]`` has LABELS, too.

    ``tables`` is used up: what is not needed any more is let go.
    """
    usable = tables["cells"]["kind"].isna().to_numpy()
    runs = tables["cells"].loc[usable, list(types(FRAMES["runs"]))].reset_index(drop=True)
    made, cells = {"runs": runs}, pd.Index(runs["cell_id"])
    for name in OWN:
        own = tables.pop(name)
        of_run = cells.get_indexer(own["cell_id"])
        columns = {
            column: own[column].array if column in own else runs[column].array.take(of_run)
            for column in types(FRAMES[name])
        }
        made[name] = pd.DataFrame(columns, copy=False)
    return made


def in_order(table: pd.DataFrame, techniques: Sequence[str]) -> pd.DataFrame:
    """Rows by technique in the order of the manifest, then by what else tells rows apart."""
    place = {name: i for i, name in enumerate(techniques)}
    ranked = table.assign(_place=[place.get(name, len(place)) for name in table["technique"]])
    by = [name for name in _SORTED_BY if name in ranked]
    ordered = ranked.sort_values(by, kind="stable", key=_by_numbers)
    return ordered.drop(columns="_place").reset_index(drop=True)


def _by_numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    """Of a column of words, accumulation 4 before accumulation 16, base_lr=5e-05 before 0.1."""
    if column.name not in ("technique_label", "context"):
        return column
    ordered = sorted(column.dropna().unique(), key=lambda value: fmt.by_number(str(value)))
    return column.map({value: place for place, value in enumerate(ordered)}.get)
