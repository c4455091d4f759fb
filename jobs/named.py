"""The sweep that a command names, and the folder of its results."""

from __future__ import annotations

import os
from pathlib import Path

from jobs.cell.laid_out import sweep_in
from jobs.config.load import guessed_name, load_sweep, sweep_name
from jobs.config.sweep import SWEEPS, Sweep
from jobs.messages import say, without_links
from jobs.slurm.client.user import become_owner
from train.errors import ConfigError
from train.record.run import MANIFEST_NAME


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
