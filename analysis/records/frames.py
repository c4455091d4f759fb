"""Tidy frames: one row per run, one row per run and epoch, and so on. A null is <NA> beside its
reason; analysis/records/columns.py says what each column is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.records.columns import (
    CLASSES,
    CLOCK,
    EPOCHS,
    GOALS,
    LABELS,
    NOISE,
    OF_A_RUN,
    RANKS,
    RUNS,
    TRAFFIC,
    TRUST,
)
from analysis.records.gather import Gathered, Problem
from analysis.records.labels import contexts, technique_labels
from analysis.table import types

_SORTED_BY = ("_place", "technique_label", "context", "gpus", "global_batch")
#: As labels write numbers: 16, 1,024, 0.05, 5e-05.
_NUMBER = re.compile(r"\d+(,\d{3})*(\.\d+)?(e[+-]?\d+)?")
#: Frames with labels.
_LABELLED = ("planned", "runs", "epochs", "classes", "goals", "ranks")
_ALL = (*_LABELLED, "traffic", "attempts")
#: Tables with rows of cells that are not usable.
_OF_ALL = ("cells", "attempts")
#: Of a config, beside the columns of CONFIG: what labels are made from.
SETTINGS = "settings"


@dataclass(frozen=True)
class Frames:
    """A sweep as frames; their columns are those of FRAMES in columns.py.

    ``planned`` has a row per planned cell, ``runs`` one per usable run in the order of the plan,
    ``epochs`` one per usable run and epoch, ``classes`` one per usable run and class of its last
    evaluation, ``goals`` one per usable run with a target, ``traffic`` one per usable run and
    network interface, ``ranks`` one per usable run and rank, ``attempts`` one per attempt of every
    cell whose record can be read, those that the plan does not name included.
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
    traffic: pd.DataFrame
    ranks: pd.DataFrame
    attempts: pd.DataFrame
    problems: tuple[Problem, ...]
    unplanned: tuple[str, ...]  # folders with a record that the present plan does not name
    settings: Mapping[str, str] = field(default_factory=dict)  # technique_settings -> as JSON

    @property
    def results(self) -> Path:
        """The folder with the sweeps' folders."""
        return self.folder if _is_merged(self) else self.folder.parent


def labelled(configs: pd.DataFrame) -> pd.DataFrame:
    """Configs, a row each, with LABELS: over all of them, so that equal names mean equal things."""
    labels = technique_labels(configs[SETTINGS])
    return configs.assign(
        technique_label=configs[SETTINGS].map(labels).astype("string"), context=contexts(configs)
    )


def merge(*frames: Frames) -> Frames:
    """Several sweeps as one, for notebooks: each frame begins with a column ``sweep``.

    Labels and contexts are made anew over all of them, so that equal names mean equal things. A
    cell may be in several sweeps, so that ``cell_id`` becomes ``SWEEP/CELL``.

    Raises:
        ValueError: there are no frames, or two sweeps have one name.
    """
    if not frames:
        raise ValueError("merge needs the frames of at least one sweep")
    parts = {name: [_of_sweep(one, name) for one in frames] for name in _ALL}
    names = [name for part in parts["planned"] for name in part["sweep"].unique()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{', '.join(twice)}: the name of two sweeps, whose rows nothing would tell apart; "
            "give one another name with dataclasses.replace(frames, name=...)"
        )
    settings = {key: text for one in frames for key, text in one.settings.items()}
    whole = {name: pd.concat(part, ignore_index=True) for name, part in parts.items()}
    known = whole["planned"].loc[whole["planned"]["known"]]
    known = labelled(known.assign(**{SETTINGS: known["technique_settings"].map(settings)}))
    labels = known.drop_duplicates("cell_id").set_index("cell_id")[list(LABELS)]
    for name in _LABELLED:
        own = labels.reindex(whole[name]["cell_id"])  # null where unknown
        whole[name] = whole[name].assign(**{label: own[label].array for label in LABELS})
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
        **whole,
    )


def _of_sweep(frames: Frames, name: str) -> pd.DataFrame:
    table: pd.DataFrame = getattr(frames, name)
    if _is_merged(frames):
        return table
    sweep = pd.Series(frames.name, index=table.index, dtype="string")
    if "cell_id" in table:
        table = table.assign(cell_id=(f"{frames.name}/" + table["cell_id"]).astype("string"))
    return pd.concat([sweep.rename("sweep"), table], axis=1)


def _of(frames: Frames, cell: str) -> str:
    return cell if _is_merged(frames) else f"{frames.name}/{cell}"


def _is_merged(frames: Frames) -> bool:
    return "sweep" in frames.planned


def frames_of(tables: Gathered, labels: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The frames of the usable cells; ``labels``: LABELS of each row of ``tables["cells"]``.

    ``tables`` is used up: what is not needed any more is let go.
    """
    usable = tables["cells"]["kind"].isna().to_numpy()
    runs = tables["cells"].assign(**{name: labels[name] for name in LABELS})[usable]
    runs = runs.reset_index(drop=True)
    # a row of the cells -> its row of the runs; what has rows elsewhere is usable
    place = np.cumsum(usable) - 1
    by_run = {name: tables.pop(name) for name in list(tables) if name not in _OF_ALL}
    if len(place):
        for table in by_run.values():
            table["cell"] = place[table["cell"].to_numpy()]
    return {
        "runs": runs[list(types(RUNS))],
        "classes": _with_runs(by_run["classes"], runs, CLASSES),
        "goals": _with_runs(by_run["goals"], runs, GOALS),
        "traffic": _with_runs(by_run["traffic"], runs, TRAFFIC),
        "ranks": _with_runs(by_run["ranks"], runs, RANKS),
        "epochs": _epochs(by_run, runs),
    }


def _with_runs(table: pd.DataFrame, runs: pd.DataFrame, columns: Sequence[Any]) -> pd.DataFrame:
    """The table with what its columns have from the run of each row."""
    place = table["cell"].to_numpy()
    made = {
        name: table[name].array if name in table else runs[name].array.take(place)
        for name in types(columns)
    }
    return pd.DataFrame(made, copy=False)


def _epochs(tables: Mapping[str, pd.DataFrame], runs: pd.DataFrame) -> pd.DataFrame:
    """``global_batch`` is the run's at its start, ``epoch_batch`` that of the epoch."""
    epochs = tables["epochs"]
    place = epochs["cell"].to_numpy()
    counts = runs["epochs_run"].to_numpy(dtype=np.int64)
    starts = counts.cumsum() - counts  # where the rows of each run begin
    made = {name: epochs[name].array for name in epochs if name != "cell"}
    for name in ("cell_id", *OF_A_RUN):
        made[name] = runs[name].array.take(place)
    for name, columns in {"noise": NOISE, "trust": TRUST}.items():
        table = tables[name]
        which = np.full(len(epochs), -1)
        which[starts[table["cell"].to_numpy()] + table["at"].to_numpy()] = np.arange(len(table))
        for part in types(columns):
            made[part] = table[part].array.take(which, allow_fill=True)
    # with NaN in place of null, so that sums need no masks; a record has neither in its seconds
    train, evaluation = (epochs[name].to_numpy(dtype=float) for name in ("train_s", "eval_s"))
    spent = pd.DataFrame({"train": train, "both": train + evaluation})
    sums = spent.groupby(place, sort=False).cumsum()
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(train > 0, epochs["images"].to_numpy(dtype=float) / train, np.nan)
    clock = (rate, sums["train"].to_numpy(), sums["both"].to_numpy())
    for column, values in zip(CLOCK, clock, strict=True):
        made[column.name] = pd.arrays.FloatingArray(values, np.isnan(values))
    return pd.DataFrame({name: made[name] for name in types(EPOCHS)}, copy=False)


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
    words = {text: _NUMBER.sub(_padded, text) for text in column.dropna().unique()}
    return column.map(words)


def _padded(found: re.Match[str]) -> str:
    """A number whose order as a text is its own."""
    return f"{float(found[0].replace(',', '')):040.20f}"
