"""The sweep that a command names: from its file, or as its results folder holds it, whatever has
become of the file."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from jobs.config.load import guessed_name, load_sweep, sweep_name
from jobs.config.sweep import SWEEPS, Sweep
from jobs.messages import say, without_links
from jobs.slurm.client.user import become_owner
from train.config.run import RunConfig, load_config
from train.errors import ConfigError, read_whole
from train.record.cell_folder import CONFIG_NAME
from train.record.run import MANIFEST_NAME, SweepManifest


def named(sweep: str, results: Path, data: Path) -> tuple[Sweep, Path]:
    """The sweep, and the folder of its results."""
    wanted = load_sweep(sweep, data=data)
    return wanted, without_links(results) / wanted.name


def folder_of(sweep: str, results: Path) -> Path:
    """Of the sweep's results, also where its file can no longer be read.

    Raises:
        ConfigError: what is wrong with the file, where no results are there either.
    """
    try:
        return results / sweep_name(sweep)
    except ConfigError:
        folder = results / guessed_name(sweep)
        if not (folder / MANIFEST_NAME).exists():
            raise
        return folder


def named_or_laid_out(sweep: str, results: Path, data: Path) -> tuple[Sweep, Path]:
    """As :func:`named`; the cells that results were laid out for, where the sweep's file, or a file
    that it names, cannot be used now."""
    folder = folder_of(sweep, without_links(results))
    become_owner(folder)
    try:
        return load_sweep(sweep, data=data), folder
    except ConfigError as error:
        found = sweep_in(folder, Path(sweep) if os.sep in sweep else SWEEPS / f"{sweep}.yaml")
        if found is None:
            raise
        say(f"{' '.join(str(error).split())}. The cells are shown as {folder} holds them")
        return found, folder


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
