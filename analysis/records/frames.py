"""Tidy frames: one row per run, one row per run and epoch, and so on. A null is <NA> beside its
reason; analysis/records/columns.py says what each column is."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.records.columns import FRAMES, LABELS, OWN
from analysis.records.gather import Gathered, Problem
from analysis.records.labels import Settings, contexts, technique_labels
from analysis.table import types

_SORTED_BY = ("_place", "technique_label", "context", "gpus", "global_batch")
#: As labels write numbers: 16, 1,024, 0.05, 5e-05.
_NUMBER = re.compile(r"\d+(,\d{3})*(\.\d+)?(e[+-]?\d+)?")


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
        return self.folder if _is_merged(self) else self.folder.parent


def labelled(configs: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Configs, a row each, with LABELS: over all of them, so that equal names mean equal things.
    They are null where the config is."""
    known = configs[configs["technique_settings"].notna()]
    labels = known["technique_settings"].map(technique_labels(settings)).astype("string")
    return configs.assign(technique_label=labels, context=contexts(known))


def merge(*frames: Frames) -> Frames:
    """Several sweeps as one, for notebooks: each frame begins with a column ``sweep``.

    Labels and contexts are made anew over all of them, so that equal names mean equal things. A
    cell may be in several sweeps, so that ``cell_id`` becomes ``SWEEP/CELL``.

    Raises:
        ValueError: there are no frames, or two sweeps have one name.
    """
    if not frames:
        raise ValueError("merge needs the frames of at least one sweep")
    parts = {name: [_of_sweep(one, name) for one in frames] for name in FRAMES}
    names = [name for part in parts["planned"] for name in part["sweep"].unique()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{', '.join(twice)}: the name of two sweeps, whose rows nothing would tell apart; "
            "give one another name with dataclasses.replace(frames, name=...)"
        )
    settings = {key: found for one in frames for key, found in one.settings.items()}
    whole = {name: pd.concat(part, ignore_index=True) for name, part in parts.items()}
    labels = labelled(whole["planned"], settings).set_index("cell_id")[list(LABELS)]
    for name, table in whole.items():
        own = labels.reindex(table["cell_id"])
        whole[name] = table.assign(**{label: own[label].array for label in LABELS})
    return Frames(
        folder=Path(os.path.commonpath([one.folder.resolve() for one in frames])),
        name=" + ".join(one.name for one in frames),
        title=" + ".join(dict.fromkeys(one.title for one in frames)),
        techniques=tuple(dict.fromkeys(name for one in frames for name in one.techniques)),
        problems=tuple(
            replace(problem, cell_id=_of(one, problem.cell_id))
            for one in frames
            for problem in one.problems
        ),
        unplanned=tuple(_of(one, name) for one in frames for name in one.unplanned),
        settings=settings,
        sites=tuple(dict.fromkeys(site for one in frames for site in one.sites)),
        **whole,
    )


def _of_sweep(frames: Frames, name: str) -> pd.DataFrame:
    table: pd.DataFrame = getattr(frames, name)
    if _is_merged(frames):
        return table
    sweep = pd.Series(frames.name, index=table.index, dtype="string", name="sweep")
    cells = (f"{frames.name}/" + table["cell_id"]).astype("string")
    return pd.concat([sweep, table.assign(cell_id=cells)], axis=1)


def _of(frames: Frames, cell: str) -> str:
    return cell if _is_merged(frames) else f"{frames.name}/{cell}"


def _is_merged(frames: Frames) -> bool:
    return "sweep" in frames.planned


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
    words = {value: _NUMBER.sub(_padded, str(value)) for value in column.dropna().unique()}
    return column.map(words.get)


def _padded(found: re.Match[str]) -> str:
    """A number whose order as a text is its own."""
    return f"{float(found[0].replace(',', '')):040.20f}"
