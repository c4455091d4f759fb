"""folder:PATH, a data set of the user's own: class folders of images of any size, listed in one
order on every file system.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train.config.datasets import place_of
from train.data.dataset import Dataset, Source, class_labels, cut, key_of, make_dataset
from train.data.sampling import take
from train.data.sources.images import Item, decode_images, is_image, resized
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


def find(path: str, size: int, root: Path) -> Source:
    """The folder as it is now; a file added, removed or changed gives another prepared form.

    ``path``: as :func:`train.config.datasets.place_of` reads it.

    Raises:
        DataError: there is no such folder, or it is no data set (see ``list_folder``), or a class
            has a single image and a part has to be held out.
    """
    folder = place_of(path, root)
    if not folder.is_dir():
        raise DataError(
            f"no folder {path!r}: looked for {folder.absolute()}. Expected a folder of images, in "
            "the data folder unless its whole path is given."
        )
    listing = list_folder(folder)
    if listing.held_out is None:
        _refuse_single(listing)
    name = listing.folder.name or "folder"
    slug = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[:24] or "folder"
    return Source(
        f"folder_{slug}",
        key_of("folder", size, listing.held_out is None, list(listing.pictures())),
        lambda: decode(name, listing, size),
    )


def decode(name: str, listing: Listing, size: int) -> Dataset:
    """Images [N, size, size, 3]; without a test/ folder, a fifth of each class is held out.

    The split is stratified and always the same for the same files: at least one image of each
    class is held out, and at least one is kept.

    Raises:
        DataError: an image cannot be decoded.
    """
    if listing.left_out:
        count, example = len(listing.left_out), listing.left_out[0]
        say(
            f"{listing.folder}: {count:,} entries are left out, which are no images in a class "
            f"folder or have a name of the storage system's own, e.g. {example}"
        )
    parts = [listing.train] if listing.held_out is None else [listing.train, listing.held_out]
    pictures = [picture for part in parts for of_class in part for picture in of_class]
    # one call for both parts, so that all damaged files are named at once
    images = decode_images([_item(listing.folder, p) for p in pictures], size, resized(size))
    labels = np.concatenate([class_labels([len(c) for c in part]) for part in parts])
    if listing.held_out is None:
        counts = np.bincount(labels)
        quotas = np.maximum(1, np.rint(counts * _HELD_OUT_FRACTION)).astype(np.int64)
        held_out, kept = take(labels, quotas)
        train, validation = (images[kept], labels[kept]), (images[held_out], labels[held_out])
    else:
        train, validation = cut(images, labels, sum(map(len, listing.train)))
    return make_dataset(name, listing.classes, train, validation)


def _item(folder: Path, picture: Picture) -> Item:
    path = folder / picture.relative
    return Item(path, path, picture.size)


def _refuse_single(listing: Listing) -> None:
    single = [
        name for name, files in zip(listing.classes, listing.train, strict=True) if len(files) < 2
    ]
    if single:
        raise DataError(
            f"{listing.folder}: class {', '.join(single)} has 1 image; a fifth of each class is "
            "held out for validation, so at least 2 are needed. Add images, or make train/ and "
            "test/ folders."
        )


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
    """test/, val/, valid/ or validation/ next to a train/, the first that is there."""
    if not (folder / "train").is_dir():
        return None
    return next((folder / name for name in _HELD_OUT if (folder / name).is_dir()), None)


def list_folder(folder: Path) -> Listing:
    """List train/ and test/ (or val/, validation/) where they are, else the class folders.

    Files may lie deeper within a class. Hidden files are left out, and so are what a storage system
    keeps there (``@eaDir``) and files that are no images by their names, which are listed. Links
    may point to files inside ``folder`` only.

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
        elif entry.is_file() and is_image(entry.name):
            status = entry.stat()
            progress(f"listing {entry.path}")
            yield Picture(path.relative_to(top).as_posix(), status.st_size, status.st_mtime_ns)
        else:
            ignore(entry.name)


def _visible(folder: Path, top: Path, ignore: Callable[[str], None]) -> Iterator[os.DirEntry[str]]:
    """Entries that are not hidden, nor reserved folders, by name."""
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
            _refuse_link_outside(Path(entry.path), top)
        yield entry


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
