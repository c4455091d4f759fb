"""Decode CIFAR-10 as image files, train/<class>/ and test/<class>/, from a folder or tar archive.

Pictures that went through JPEG differ a little from the published pixels, so the name says it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath

import numpy as np

from train.data.archive import tar_files
from train.data.arrays import Dataset, class_labels, cut, make_dataset
from train.data.errors import DataError
from train.data.images import Item, decode_images, exactly, is_image
from train.data.listing import Listing

NAME = "CIFAR-10"
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
#: Bytes that an archive may unpack to; the published pickles have 178 MB.
LIMIT = 1 << 30
_SIDE = 32
_JPEG = frozenset({".jpg", ".jpeg", ".jpe", ".jfif"})
_PLACES = [(part, name) for part in ("train", "test") for name in CLASSES]

#: (train or test, class, image)
Found = tuple[str, str, Item]


def from_folder(listing: Listing) -> Dataset:
    """Raises: DataError: other classes, other sizes than 32 x 32, or damaged images."""
    parts = zip(("train", "test"), (listing.train, listing.held_out or ()), strict=True)
    found = [
        (part, name, Item(path := listing.folder / picture.relative, path, picture.size))
        for part, classes in parts
        for name, pictures in zip(listing.classes, classes, strict=True)
        for picture in pictures
    ]
    return _decode(found, listing.folder)


def from_archive(archive: Path) -> Dataset:
    """Members [any folders/]train|test/<class>/<file>.

    Raises:
        DataError: as for a folder, and where the archive is truncated or unsafe.
    """
    found = []
    for path, content in tar_files(archive, LIMIT):
        hidden = any(part.startswith(".") for part in path.parts)
        if len(path.parts) >= 3 and not hidden and is_image(path.name):
            item = Item(archive / path, content, len(content))
            found.append((path.parts[-3], path.parts[-2], item))
    return _decode(sorted(found, key=lambda member: member[2].name.as_posix()), archive)


def _decode(found: Iterable[Found], where: Path) -> Dataset:
    """Check parts and classes by name, then decode; training images first, class after class."""
    by_place: dict[tuple[str, str], list[Item]] = {}
    for part, of_class, item in found:
        by_place.setdefault((part, of_class), []).append(item)
    _check_places(set(by_place), where)
    items = [item for place in _PLACES for item in by_place[place]]
    images = decode_images(items, _SIDE, exactly(_SIDE, _SIDE))
    counts = [len(by_place[place]) for place in _PLACES]
    train, test = counts[: len(CLASSES)], counts[len(CLASSES) :]
    labels = np.concatenate([class_labels(train), class_labels(test)])
    return make_dataset(_name(items), CLASSES, *cut(images, labels, sum(train)))


def _check_places(places: set[tuple[str, str]], where: Path) -> None:
    missing, unexpected = set(_PLACES) - places, places - set(_PLACES)
    if missing or unexpected:
        texts = [
            f"{what} {', '.join('/'.join(place) for place in sorted(which)[:5])}"
            for what, which in (("missing", missing), ("unexpected", unexpected))
            if which
        ]
        raise DataError(
            f"{where} is no CIFAR-10: {'; '.join(texts)}. Expected train/<class>/ and "
            f"test/<class>/ with the classes {', '.join(CLASSES)}."
        )


def _name(items: Iterable[Item]) -> str:
    suffixes = {PurePath(item.name).suffix.lower() for item in items}
    kinds = ["JPEG"] if suffixes & _JPEG else sorted(s[1:].upper() for s in suffixes)
    return f"{NAME} ({', '.join(kinds)})"
