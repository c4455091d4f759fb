"""folder:PATH, a data set of the user's own: class folders of images of any size, listed in one
order on every file system.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train.config.datasets import place_of
from train.data.dataset import Dataset, Source, cut, make_dataset, name_of
from train.data.sampling import split_by_class
from train.data.sources.images import SUFFIXES, decode_images
from train.data.waiting import progress, say
from train.errors import DataError

_HELD_OUT_FRACTION = 0.2
_EXPECTED = (
    "Expected one folder of images for each class, or train/ and test/ (or val/, valid/, "
    "validation/) with such folders."
)
#: Names in other spellings are taken for a mistake, not for classes.
_PARTS = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})
_HELD_OUT = ("test", "val", "valid", "validation")
#: Folders that storage systems and desktops make, apart from hidden ones: thumbnails, recycle bins
#: and snapshots of a NAS, and so on.
_RESERVED = re.compile(
    r"@(eadir|tmp|recycle|recently-snapshot|__thumb)|#(recycle|snapshot)|~snapshot|recycler"
    r"|\$recycle\.bin|system volume information|lost\+found|__macosx",
    re.IGNORECASE,
)


class Picture(NamedTuple):
    relative: str  # to the data set's folder, with slashes
    size: int  # bytes
    mtime_ns: int


#: Class names in order, and the sorted image files of each.
Classes = dict[str, tuple[Picture, ...]]


def find(path: str, size: int, root: Path) -> Source:
    """The folder as it is now; a file added, removed or changed gives another prepared form."""
    folder = place_of(path, root)
    if not folder.is_dir():
        raise DataError(
            f"no folder {path!r}: looked for {folder.absolute()}. Expected a folder of images, in "
            "the data folder unless its whole path is given."
        )
    folder = folder.resolve()
    parts, left_out = _list_folder(folder)
    pictures = [one for part in parts for of_class in part.values() for one in of_class]
    slug = re.sub(r"[^a-z0-9_]+", "_", folder.name.lower()).strip("_")[:24] or "folder"
    name = name_of(f"folder_{slug}", "folder", size, len(parts) == 1, pictures)
    files = [folder / picture.relative for picture in pictures]
    return Source(name, partial(_decode, folder, parts, left_out, files, size))


def _decode(
    folder: Path, parts: list[Classes], left_out: list[str], files: list[Path], size: int
) -> Dataset:
    """Without a test/ folder, a fifth of each class is held out: always the same images, at least
    one, and at least one is kept."""
    if left_out:
        say(
            f"{folder}: {len(left_out):,} entries are left out, which are no images in a class "
            f"folder or have a name of the storage system's own, e.g. {left_out[0]}"
        )
    counts = [[len(of_class) for of_class in part.values()] for part in parts]
    labels = np.concatenate([np.repeat(np.arange(len(part)), part) for part in counts])
    trained = sum(counts[0])
    if len(parts) == 1:
        quotas = np.maximum(1, np.rint(np.array(counts[0]) * _HELD_OUT_FRACTION)).astype(np.int64)
        held_out, kept = split_by_class(labels, quotas)
        trained, order = len(kept), np.concatenate([kept, held_out])
        # before they are decoded: parts of decoded images would be a second copy of them
        files, labels = [files[place] for place in order], labels[order]
    images = decode_images(files, size)  # of both parts, so that all damaged files are named
    train, validation = cut(images, labels, trained)
    return make_dataset(folder.name or "folder", list(parts[0]), train, validation)


def _list_folder(folder: Path) -> tuple[list[Classes], list[str]]:
    """The classes of train/ and test/ (or val/, validation/) where they are, else of the folder;
    and the names of what was left out, except hidden files."""
    ignored: list[str] = []
    there = [name for name in _HELD_OUT if (folder / name).exists()]
    tops = [folder / "train", *(folder / name for name in there if (folder / name).is_dir())][:2]
    if len(tops) == 1 or not tops[0].is_dir():
        classes = _classes(folder, folder, ignored.append)
        if single := [name for name, files in classes.items() if len(files) < 2]:
            raise DataError(
                f"{folder}: class {', '.join(single)} has 1 image; a fifth of each class is "
                "held out for validation, so at least 2 are needed. Add images, or make train/ and "
                "test/ folders."
            )
        return [classes], ignored
    parts = [_classes(top, folder, ignored.append) for top in tops]
    if only := [
        f"only in {top}: {', '.join(sorted(of.keys() - other.keys()))}"
        for top, of, other in zip(tops, parts, parts[::-1], strict=True)
        if of.keys() - other.keys()
    ]:
        raise DataError(f"training and held-out images have different classes: {'; '.join(only)}")
    ignored += [name for name in there if name != tops[1].name]
    return parts, ignored


def _classes(folder: Path, top: Path, ignore: Callable[[str], None]) -> Classes:
    found: Classes = {}
    for entry in _visible(folder, top, ignore):
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
    for entry in _visible(folder, top, ignore):
        path = Path(entry.path)
        if entry.is_dir():
            yield from _pictures(path, top, ignore)
        elif entry.is_file() and path.suffix.lower() in SUFFIXES:
            status = entry.stat()
            progress(f"listing {entry.path}")
            yield Picture(path.relative_to(top).as_posix(), status.st_size, status.st_mtime_ns)
        else:
            ignore(entry.name)


def _visible(folder: Path, top: Path, ignore: Callable[[str], None]) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        found = sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)
    for entry in found:
        if _RESERVED.fullmatch(entry.name) and entry.is_dir():
            ignore(entry.name)
            continue
        try:
            entry.name.encode()
        except UnicodeEncodeError:
            raise DataError(f"{entry.path!r}: the name is not UTF-8; rename it") from None
        if entry.is_symlink():
            target = Path(os.path.realpath(entry.path))
            if not (target.is_file() and target.is_relative_to(top)):
                raise DataError(
                    f"{entry.path} is a link to {target}, which is no file in {top}: images could "
                    "change unseen, or count twice. Copy the files there, or delete the link."
                )
        yield entry
