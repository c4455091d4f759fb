"""Several sweeps as one: what a report, a notebook or an export of them is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.page.anonymous import without_names
from analysis.page.network import network_beside
from analysis.page.report import Report, build
from analysis.records.columns import FRAMES
from analysis.records.frames import Frames, merge
from analysis.records.load import SweepError, load_frames
from analysis.table import first_of
from analysis.topics.topic import Caution


def frames_of(folders: Sequence[Path], *, cache: bool = False) -> tuple[Frames, tuple[str, ...]]:
    """All sweeps as one, and the cells that several of them have.

    Such a cell counts once: the same run twice is no second run. It is that of the first sweep that
    has a usable run of it.

    Raises:
        SweepError: one of them is no sweep, or two have one name.
    """
    loaded = [load_frames(folder, cache=cache) for folder in folders]
    if len(loaded) == 1:
        return loaded[0], ()
    names = [one.name for one in loaded]
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise SweepError(
            f"{', '.join(map(str, folders))}: found two sweeps with the name {', '.join(again)}, "
            "expected different ones. To compare two measurements of one sweep: analysis compare "
            "BEFORE AFTER"
        )
    owners: dict[str, int] = {}
    for table in ("runs", "planned"):
        for number, one in enumerate(loaded):
            for cell in getattr(one, table)["cell_id"]:
                owners.setdefault(cell, number)
    planned = pd.concat([one.planned["cell_id"] for one in loaded])
    twice = tuple(planned[planned.duplicated()].unique())
    return merge(*(_own(one, number, owners) for number, one in enumerate(loaded))), twice


def _own(frames: Frames, number: int, owners: Mapping[str, int]) -> Frames:
    """Without the cells that are those of another sweep."""

    def is_own(cell: str) -> bool:
        return owners.get(cell, number) == number

    tables: dict[str, Any] = {f.name: getattr(frames, f.name) for f in fields(frames)}
    kept: dict[str, Any] = {
        name: table[table["cell_id"].map(is_own).astype(bool)].reset_index(drop=True)
        for name, table in tables.items()
        if isinstance(table, pd.DataFrame) and len(table)
    }
    problems = tuple(one for one in frames.problems if is_own(one.cell_id))
    return replace(frames, problems=problems, **kept)


def report_of(
    folders: Sequence[Path], *, draw: bool = True, cache: bool = False, anonymous: bool = False
) -> Report:
    """One report of all these sweeps. Raises SweepError as :func:`frames_of`."""
    frames, twice = frames_of(folders, cache=cache)
    network = network_beside(replace(frames, folder=folders[0]))
    report = build(without_names(frames) if anonymous else frames, network=network, draw=draw)
    if not twice:
        return report
    which = first_of([] if anonymous else twice, 3)
    text = (
        f"{len(twice)} cells are planned by several of these sweeps and count once"
        f"{f' ({which})' if which else ''}."
    )
    return replace(report, cautions=(*report.cautions, Caution(text, "none")))


def columns() -> pd.DataFrame:
    """What the columns of all frames are, a row each."""
    rows = [
        {"table": name, "column": column.name, "type": column.dtype, "unit": column.unit,
         "description": column.description}
        for name, own in FRAMES.items() for column in own
    ]  # fmt: skip
    return pd.DataFrame(rows)


def exported(frames: Frames) -> dict[str, pd.DataFrame]:
    """File name -> table: the tidy frames, a row per run, epoch, rank and so on, and columns.csv,
    which says what each column is."""
    tables = {f"{name}.csv": getattr(frames, name) for name in FRAMES}
    return tables | {"columns.csv": columns()}
