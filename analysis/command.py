"""What the commands share: where a report is, what it was made of, whose files it writes, and how a
wrong request ends."""

from __future__ import annotations

import contextlib
import hashlib
import json
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
OF_A_REPORT = ("report.html", "report.md", "answers.json")


def report_folder(folders: Sequence[Path]) -> Path:
    """Where their report is: of several sweeps a folder a+b beside the first of them."""
    if len(folders) == 1:
        return folders[0]
    places = [folder.resolve() for folder in folders]
    return places[0].parent / "+".join(place.name for place in places)


def sources_of(results_dirs: Sequence[Path]) -> str:
    """A digest that changes when a file that a report reads or this program does, or when one of
    the files or a cell's folder comes or goes. It costs two looks at a cell."""
    program = Path(__file__).parent
    found: list[tuple[str, int, int]] = []

    def look(*files: Path) -> None:
        found.extend((str(f), s.st_size, s.st_mtime_ns) for f in files if (s := _stat(f)))

    for results_dir in results_dirs:
        beside = results_dir.resolve().parent / "interconnect"
        look(results_dir / "sweep.json", *sorted(results_dir.glob(".slurm/[!.]*.json")))
        look(*sorted(beside.glob("*/*.json")))
        for cell in sorted(results_dir.glob("[!.]*/")):
            before = len(found)
            look(cell / "record.json")
            if len(found) == before and cell.name != "report":
                found.append((str(cell), 0, 0))
                look(cell / "epochs.jsonl")  # read where there is no record
            look(cell / "config.json")
    for folder in (program, program.parent / "train"):
        look(*sorted(folder.rglob("*.py")), *sorted(folder.rglob("templates/*")))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _stat(file: Path) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        return file.stat()
    return None


def kept_code(kept: Path, sources: str) -> int | None:
    """Exit code of the report beside ``kept`` that was made of these very sources; None: make it
    again."""
    if not all((kept.parent / name).is_file() for name in OF_A_REPORT):
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads(kept.read_text(encoding="utf-8"))
        return int(told["exit_code"]) if told["sources"] == sources else None
    return None


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
