"""One sweep's folder as frames: what may be used, and why every other planned cell may not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from analysis.records import cache as on_disk
from analysis.records.attempts import attempts_frame, submissions
from analysis.records.columns import CONFIG, LABELS, PLANNED
from analysis.records.extract import config_row
from analysis.records.frames import Frames, frames_of, labelled
from analysis.records.gather import Gathered, chosen, problems_in, together
from analysis.records.labels import SETTINGS, Settings, parsed_settings
from analysis.records.read import read_cells
from analysis.table import types
from train.config.run import explain, load_config
from train.errors import ConfigError, Unreadable
from train.record.cell_folder import CONFIG_NAME
from train.record.run import MANIFEST_NAME, RECORD_NAME, SweepManifest


class SweepError(ValueError):
    """There is no sweep to report on; the text says what was found, expected and what to do."""


def load_frames(folder: Path, cache: bool = True) -> Frames:
    """Read results/<sweep>/ into frames, record by record.

    ``cache``: of many records, take from RESULTS_DIR/report/.cache what was read before, and keep
    there what is read now. A record that changed since is read anew.

    Raises:
        SweepError: the folder or its sweep.json is missing or broken.
    """
    manifest = _read_manifest(folder)
    cells = tuple(dict.fromkeys(manifest.cells))
    unplanned = _unplanned(folder, cells)
    tables = _tables(folder, (*cells, *unplanned), cache=cache)
    attempts = attempts_frame(tables, len(cells), submissions(folder))
    tables = chosen(tables, np.arange(len(cells)))
    found = tables["cells"]
    configs, settings = _known_configs(folder, cells, found)
    state = found["kind"].fillna("usable")
    planned = found.assign(**{str(name): own for name, own in configs.items()})
    planned = planned.assign(cell_id=list(cells), state=state)
    order = [*manifest.techniques]
    order += sorted(set(found["technique"][state == "usable"]) - set(order))
    return Frames(
        folder=folder,
        name=manifest.name,
        title=manifest.title,
        techniques=tuple(order),
        planned=planned[list(types(PLANNED))].astype(types(PLANNED)),
        problems=tuple(problems_in(found)),
        unplanned=unplanned,
        settings=settings,
        attempts=attempts,
        **frames_of(tables, configs),
    )


def _tables(folder: Path, cells: tuple[str, ...], *, cache: bool) -> Gathered:
    """Of these cells, in their order."""
    if not cache or len(cells) < on_disk.WORTH_IT:
        return read_cells(folder, cells)
    stamps = on_disk.stamps(folder, cells)
    known = on_disk.load(folder, stamps)
    left = [cell for cell in cells if cell not in known.places]
    if not left:
        return chosen(known.tables, np.array([known.places[cell] for cell in cells]))
    fresh, before = read_cells(folder, left), len(known.tables["cells"])
    places = {**known.places, **{cell: before + place for place, cell in enumerate(left)}}
    tables = together([known.tables, fresh])
    tables = chosen(tables, np.array([places[cell] for cell in cells]))
    on_disk.store(folder, cells, stamps, tables)
    return tables


def _known_configs(
    folder: Path, cells: tuple[str, ...], found: pd.DataFrame
) -> tuple[pd.DataFrame, Settings]:
    """Columns of CONFIG and ``known`` of each cell: from its record, else from its config.json;
    null where neither can be read or is of this cell. Then the settings of the techniques."""
    dtypes = {**types(CONFIG), SETTINGS: "string"}
    configs = found[[name for name in dtypes if name not in LABELS]].copy()
    rows = {
        place: row
        for place in np.flatnonzero(found[SETTINGS].isna())
        if (row := _planned_config(folder, cells[place])) is not None
    }
    if rows:
        read = pd.DataFrame(list(rows.values()), index=list(rows))
        configs.loc[read.index, list(configs)] = read[list(configs)]
        configs = configs.astype({str(name): dtypes[str(name)] for name in configs})
    known = configs[SETTINGS].notna()
    settings = parsed_settings(configs)
    labels = labelled(configs[known], settings)[list(LABELS)].reindex(configs.index)
    return configs.assign(known=known, **{name: labels[name] for name in LABELS}), settings


def _planned_config(folder: Path, cell_id: str) -> dict[str, Any] | None:
    try:
        config = load_config(folder / cell_id / CONFIG_NAME)
    except (ConfigError, Unreadable):
        return None
    return config_row(config) if config.cell_id() == cell_id else None


def _unplanned(folder: Path, cells: tuple[str, ...]) -> tuple[str, ...]:
    planned = set(cells)
    with os.scandir(folder) as entries:
        # a name that is no text of UTF-8 could not be written down
        others = sorted(e.name for e in entries if e.name not in planned and e.name.isprintable())
    # unlike Path.is_file, False where a folder may not be searched
    return tuple(name for name in others if os.path.isfile(folder / name / RECORD_NAME))  # noqa: PTH113


def _read_manifest(folder: Path) -> SweepManifest:
    path = folder / MANIFEST_NAME
    expected = (
        f"Expected a folder results/<sweep>/ with {MANIFEST_NAME} and one folder per cell, as "
        "`make sweep SWEEP=<sweep>` makes it."
    )
    if not folder.is_dir():
        raise SweepError(f"{folder}: no such folder. {expected}")
    if not path.is_file():
        raise SweepError(f"{folder}: has no {MANIFEST_NAME}. {expected}")
    try:
        return SweepManifest.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SweepError(f"{path}: cannot be read: {error.strerror}. {expected}") from error
    except (ValidationError, UnicodeDecodeError) as error:
        raise SweepError(
            f"{path}: not a manifest of a sweep: {explain(error).strip()}. {expected}"
        ) from error
