"""What a results folder holds of a sweep, whatever has become of the sweep's file."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from jobs.config.sweep import Sweep
from train.config.run import RunConfig, load_config
from train.errors import ConfigError, read_whole
from train.record.cell_folder import CONFIG_NAME
from train.record.run import MANIFEST_NAME, SweepManifest


def cells_in(folder: Path, but: Collection[str] = ()) -> list[RunConfig]:
    """Configs of the cells that have a folder there, except those of these ids. A cell whose config
    cannot be read, as one of a later version, is left out."""
    configs = []
    for cell in sorted(folder.glob("*")):
        if cell.name not in but:
            with suppress(ConfigError, OSError):
                configs.append((cell.name, load_config(cell / CONFIG_NAME)))
    return [config for name, config in configs if config.cell_id() == name]


def sweep_in(folder: Path, source: Path) -> Sweep | None:
    """The sweep that was laid out there last, by its sweep.json; None where there is none.

    source: its file, which cannot be used.
    """
    try:
        manifest = SweepManifest.model_validate_json(read_whole(folder / MANIFEST_NAME) or b"")
    except (ValidationError, OSError):
        return None
    there = {config.cell_id(): config for config in cells_in(folder)}
    configs = tuple(there[name] for name in manifest.cells if name in there)
    return Sweep(folder.name, manifest.title, source, configs, manifest.techniques, None)
