"""What the commands share: where a report is, whose files it writes, how a wrong request ends."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import typer

WRONG_REQUEST = 2


def report_folder(folders: Sequence[Path]) -> Path:
    """Where their report is: of several sweeps a folder a+b next to the first of them."""
    if len(folders) == 1:
        return folders[0]
    places = [folder.resolve() for folder in folders]
    return places[0].parent / "+".join(place.name for place in places)


@contextlib.contextmanager
def wrong_requests(*kinds: type[ValueError], writes: Path | None = None) -> Iterator[None]:
    """Ends with the message of such an error, or of a file that cannot be written; ``writes``: the
    file, or the folder of files."""
    try:
        yield
    except kinds as error:
        wrong(str(error))
    except OSError as error:
        if writes is None:
            raise
        wrong(f"cannot write {error.filename or writes}: {error.strerror}")


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
