"""What the commands share: where a report is, whose files it writes, how a wrong request ends."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from train.record.atomic import write_atomically

if TYPE_CHECKING:
    from analysis.records.frames import Frames

WRONG_REQUEST = 2


def report_folder(folders: Sequence[Path]) -> Path:
    """Where their report is: of several sweeps a folder a+b beside the first of them."""
    if len(folders) == 1:
        return folders[0]
    places = [folder.resolve() for folder in folders]
    return places[0].parent / "+".join(place.name for place in places)


def write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text)
    except OSError as error:
        wrong(f"cannot write {path}: {error.strerror}")


def as_owner(folder: Path) -> None:
    """Root writes nothing where the practice cluster's user may have planted a link: this command
    goes on as that user, and does not return."""
    with contextlib.suppress(OSError, KeyError):  # no such folder, an id without a name
        if os.geteuid() == 0 and folder.owner() == "practice":
            program = str(Path(__file__).parents[1] / "containers" / "practice")
            again = [sys.executable, "-m", "analysis", *sys.argv[1:]]
            os.execv(sys.executable, [sys.executable, program, "login", "--", *again])  # noqa: S606


def wrong(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(WRONG_REQUEST)


def frames_at(results_dir: Path) -> Frames:
    """The frames of a sweep; nothing is written."""
    from analysis.records.load import SweepError, load_frames  # noqa: PLC0415

    try:
        return load_frames(results_dir, cache=False)
    except SweepError as error:
        wrong(str(error))
