"""CIFAR-10: the publisher's pickles, or the same pictures as image files, packed or not.

Looked for in the data folder and its sub-folder cifar10/, in this order: cifar-10-batches-py/,
cifar-10-python.tar.gz, a folder with train/<class>/ and test/<class>/, a tar archive of one.
Pictures that went through JPEG differ a little from the published pixels, so the name says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path, PurePath

import numpy as np

from train.data.dataset import Dataset, Source, class_labels, cut, key_of, make_dataset, stat_key
from train.data.sources import cifar_pickles
from train.data.sources.archive import tar_files
from train.data.sources.cifar_pickles import CLASSES, LIMIT, NAME
from train.data.sources.download import Remote
from train.data.sources.image_folder import Listing, held_out_folder, list_folder
from train.data.sources.images import Item, decode_images, exactly, is_image
from train.errors import DataError

_SLUG = "cifar10"
_PICKLES = "cifar-10-batches-py"
_NAMES = ("cifar10", "cifar-10", "CIFAR-10-images", "cifar10-imagefolder")
_ARCHIVES = (".tar.xz", ".tar.gz", ".tgz", ".tar.bz2", ".tar")
_SIDE = 32
_JPEG = frozenset({".jpg", ".jpeg", ".jpe", ".jfif"})
_PLACES = [(part, name) for part in ("train", "test") for name in CLASSES]
#: (train or test, class, image)
Found = tuple[str, str, Item]


def published_keys(remotes: Sequence[Remote]) -> tuple[str, ...]:
    """Of prepared forms whose content was compared with what was published."""
    (remote,) = remotes
    return (key_of("pickles", remote.sha256),)


def find(root: Path, remotes: Sequence[Remote]) -> Source | None:
    """The first form that is there, or None.

    Raises:
        DataError: an image folder is there, but is no data set.
    """
    (remote,) = remotes
    bases = (root, root / "cifar10")
    for base in bases:
        batches = [base / _PICKLES / name for name in cifar_pickles.BATCHES]
        if all(file.is_file() for file in batches):
            decode = partial(cifar_pickles.from_folder, base / _PICKLES)
            return Source(_SLUG, key_of("pickles", stat_key(batches)), decode)
        archive = base / remote.name
        if archive.is_file():
            decode = partial(cifar_pickles.from_archive, archive, remote)
            return Source(_SLUG, published_keys(remotes)[0], decode)
    for folder in (root, *(root / name for name in _NAMES)):
        if held_out_folder(folder) and (folder / "train" / CLASSES[0]).is_dir():
            listing = list_folder(folder)
            key = key_of("images", list(listing.pictures()))
            return Source(_SLUG, key, partial(from_folder, listing))
    for archive in (b / f"{name}{end}" for b in bases for name in _NAMES for end in _ARCHIVES):
        if archive.is_file():
            decode = partial(from_archive, archive)
            return Source(_SLUG, key_of("images", stat_key([archive])), decode)
    return None


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
