"""Image files in class folders, listed the same way on every file system."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from train.data.errors import DataError
from train.data.images import is_image
from train.data.progress import goes_on

_EXPECTED = (
    "Expected one folder of images for each class, or train/ and test/ (or val/, valid/, "
    "validation/) with such folders."
)
#: Names in other spellings are taken for a mistake, not for classes.
_PARTS = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})
_HELD_OUT = ("test", "val", "valid", "validation")


class Picture(NamedTuple):
    relative: str  # to the data set's folder, with slashes
    size: int  # bytes
    mtime_ns: int


@dataclass(frozen=True)
class Listing:
    """Class names in order, and per class the sorted image files."""

    folder: Path
    classes: tuple[str, ...]
    train: tuple[tuple[Picture, ...], ...]
    held_out: tuple[tuple[Picture, ...], ...] | None  # None: to be split off
    left_out: tuple[str, ...]  # entries that are no images in a class folder

    def pictures(self) -> Iterator[Picture]:
        for part in (self.train, self.held_out or ()):
            for pictures in part:
                yield from pictures


def held_out_folder(folder: Path) -> Path | None:
    """test/, val/, valid/ or validation/ beside a train/, the first that is there."""
    if not (folder / "train").is_dir():
        return None
    return next((folder / name for name in _HELD_OUT if (folder / name).is_dir()), None)


def list_folder(folder: Path) -> Listing:
    """List train/ and test/ (or val/, validation/) where they are, else the class folders.

    Files may lie deeper within a class. Hidden files are left out, and so are files that are
    no images by their names, which are listed. Links may point to files inside ``folder`` only.

    Raises:
        DataError: no or one class, an empty class, other classes in test/ than in train/, a link
            that leaves the folder, or a name that is not UTF-8.
        OSError: the folder cannot be read.
    """
    folder = folder.resolve()
    ignored: list[str] = []
    held_out_at = held_out_folder(folder)
    if held_out_at is None:
        found, held_out = _classes(folder, folder, ignored.append), None
    else:
        found = _classes(folder / "train", folder, ignored.append)
        held_out = _classes(held_out_at, folder, ignored.append)
        _same_classes(found, held_out, folder / "train", held_out_at)
        ignored += [
            name for name in _HELD_OUT if folder / name != held_out_at and (folder / name).exists()
        ]
    return Listing(
        folder,
        tuple(found),
        tuple(found.values()),
        None if held_out is None else tuple(held_out.values()),
        tuple(ignored),
    )


def _classes(
    folder: Path, top: Path, ignore: Callable[[str], None]
) -> dict[str, tuple[Picture, ...]]:
    found: dict[str, tuple[Picture, ...]] = {}
    for entry in _visible(folder, top):
        if not entry.is_dir():
            ignore(entry.name)
            continue
        if entry.name.lower() in _PARTS:
            raise DataError(f"{entry.path} looks like a part, not a class. {_EXPECTED}")
        found[entry.name] = tuple(sorted(_pictures(Path(entry.path), top, ignore)))
        if not found[entry.name]:
            raise DataError(f"class folder {entry.path} holds no image; fill or delete it")
    if len(found) < 2:
        raise DataError(
            f"{folder}: {len(found)} class folders found ({', '.join(found) or 'none'}), at least "
            f"2 expected. {_EXPECTED}"
        )
    return found


def _pictures(folder: Path, top: Path, ignore: Callable[[str], None]) -> Iterator[Picture]:
    for entry in _visible(folder, top):
        path = Path(entry.path)
        if entry.is_dir():
            yield from _pictures(path, top, ignore)
        elif entry.is_file() and is_image(entry.name):
            status = entry.stat()
            goes_on(f"listing {entry.path}")
            yield Picture(path.relative_to(top).as_posix(), status.st_size, status.st_mtime_ns)
        else:
            ignore(entry.name)


def _visible(folder: Path, top: Path) -> list[os.DirEntry[str]]:
    """Entries that are not hidden, by name."""
    with os.scandir(folder) as entries:
        found = sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)
    for entry in found:
        try:
            entry.name.encode()
        except UnicodeEncodeError:
            raise DataError(f"{entry.path!r}: the name is not UTF-8; rename it") from None
        if entry.is_symlink():
            _refuse_link_outside(Path(entry.path), top)
    return found


def _refuse_link_outside(link: Path, top: Path) -> None:
    target = Path(os.path.realpath(link))
    if not target.is_relative_to(top):
        raise DataError(
            f"{link} is a link to {target}, outside of {top}: the data set could change unseen. "
            "Copy the files into the folder."
        )
    if not target.is_file():
        raise DataError(
            f"{link} is a link to {target}, which is no file: its images would count twice, or it "
            "is broken. Delete the link."
        )


def _same_classes(
    train: dict[str, tuple[Picture, ...]],
    held_out: dict[str, tuple[Picture, ...]],
    train_at: Path,
    held_out_at: Path,
) -> None:
    only = [
        f"only in {folder}: {', '.join(sorted(a.keys() - b.keys()))}"
        for folder, a, b in ((train_at, train, held_out), (held_out_at, held_out, train))
        if a.keys() - b.keys()
    ]
    if only:
        raise DataError(f"training and held-out images have different classes: {'; '.join(only)}")
