"""CIFAR-10: the publisher's pickles, or the same pictures as image files, in a folder or archive.

Looked for in the data folder and its sub-folder cifar10/, in this order: cifar-10-batches-py/,
cifar-10-python.tar.gz, a folder with train/<class>/ and test/<class>/, a tar archive of one.
Pictures that went through JPEG differ a little from the original; reports call them so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath, PurePosixPath

import numpy as np

from train.config import DATASETS
from train.data.archive import tar_files
from train.data.arrays import Dataset, Labels, Pixels, make_dataset
from train.data.download import Remote, verify
from train.data.errors import DataError
from train.data.folder import class_labels, cut
from train.data.images import Item, decode_images, exactly, is_image
from train.data.listing import held_out_folder, list_folder
from train.data.source import Source, key_of, stat_key
from train.data.unpickle import read_pickle

NAME = "CIFAR-10"
CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_SIDE = 32
_PICKLES = "cifar-10-batches-py"
_NAMES = ("cifar10", "cifar-10", "CIFAR-10-images", "cifar10-imagefolder")
_ARCHIVES = (".tar.xz", ".tar.gz", ".tgz", ".tar.bz2", ".tar")
_LIMIT = 1 << 30  # bytes an archive may unpack to; the pickles have 178 MB


def find(root: Path, remotes: Sequence[Remote]) -> Source | None:
    """The first form that is there, or None.

    Raises:
        DataError: an image folder is there, but is no data set.
    """
    (remote,) = remotes
    for base in (root, root / "cifar10"):
        folder = base / _PICKLES
        if all((folder / name).is_file() for name in BATCHES):
            key = key_of("pickles", stat_key(folder / name for name in BATCHES))
            return Source("cifar10", key, lambda: _from_folder(folder))  # noqa: B023 - returns
        archive = base / remote.name
        if archive.is_file():
            key = key_of("pickles", remote.sha256)
            return Source("cifar10", key, lambda: _from_archive(archive, remote))  # noqa: B023
    return _find_images(root)


def _find_images(root: Path) -> Source | None:
    for folder in (root, *(root / name for name in _NAMES)):
        if held_out_folder(folder) and (folder / "train" / CLASSES[0]).is_dir():
            return _from_image_folder(folder)
    for base in (root, root / "cifar10"):
        for archive in (base / f"{name}{suffix}" for name in _NAMES for suffix in _ARCHIVES):
            if archive.is_file():
                key = key_of("images", stat_key([archive]))
                return Source("cifar10", key, lambda: _from_image_archive(archive))  # noqa: B023
    return None


def _from_folder(folder: Path) -> Dataset:
    return _from_pickles(lambda name: (folder / name).read_bytes(), folder)


def _from_archive(archive: Path, remote: Remote) -> Dataset:
    verify(archive, remote)
    found = {path.name: content for path, content in tar_files(archive, _LIMIT)}
    missing = [name for name in BATCHES if name not in found]
    if missing:
        raise DataError(f"{archive}: {', '.join(missing)} not found in it; get the file anew.")
    return _from_pickles(found.__getitem__, archive)


def _from_pickles(read: Callable[[str], bytes], where: Path) -> Dataset:
    parts = [_batch(read(name), where / name) for name in BATCHES]
    images = np.concatenate([images for images, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    return make_dataset(NAME, CLASSES, *cut(images, labels, len(labels) - len(parts[-1][1])))


def _batch(content: bytes, path: Path) -> tuple[Pixels, Labels]:
    """Rows of 3,072 bytes, a plane for each colour -> [n, 32, 32, 3]."""
    found = read_pickle(content, path)
    if isinstance(found, dict):
        data, labels = (found.get(key, found.get(key.decode())) for key in (b"data", b"labels"))
        if (
            isinstance(data, np.ndarray)
            and data.dtype == np.uint8
            and data.shape[1:] == (3 * _SIDE * _SIDE,)
            and isinstance(labels, list)
            and all(isinstance(label, int) for label in labels)
        ):
            planes = data.reshape(-1, 3, _SIDE, _SIDE)
            return planes.transpose(0, 2, 3, 1), np.array(labels, np.int64)
    raise DataError(
        f"{path} is no CIFAR-10 batch: expected 'data', uint8 [n, 3072], and 'labels', a list of "
        "integers. Get the file anew."
    )


def _from_image_folder(folder: Path) -> Source:
    listing = list_folder(folder)
    assert listing.held_out is not None

    def decode() -> Dataset:
        found = [
            (part, name, Item(folder / p.relative, listing.folder / p.relative, p.size))
            for part, classes in (("train", listing.train), ("test", listing.held_out or ()))
            for name, pictures in zip(listing.classes, classes, strict=True)
            for p in pictures
        ]
        return _from_items(found, folder)

    return Source("cifar10", key_of("images", list(listing.pictures())), decode)


def _from_image_archive(archive: Path) -> Dataset:
    return _from_items(sorted(_members(archive), key=lambda member: member[2].name), archive)


def _members(archive: Path) -> Iterator[tuple[str, str, Item]]:
    """(train or test, class, image) of [any folders/]train|test/<class>/<file>."""
    for path, content in tar_files(archive, _LIMIT):
        hidden = any(part.startswith(".") for part in path.parts)
        if len(path.parts) >= 3 and not hidden and is_image(path.name):
            yield path.parts[-3], path.parts[-2], Item(archive / path, content, len(content))


def _from_items(found: Sequence[tuple[str, str, Item]], where: Path) -> Dataset:
    """Check parts and classes by name, then decode; training images first."""
    places = {(part, name) for part, name, _ in found}
    expected = {(part, name) for part in ("train", "test") for name in CLASSES}
    if places != expected:
        texts = [
            f"{what} {', '.join('/'.join(place) for place in sorted(different)[:5])}"
            for what, different in (
                ("missing", expected - places),
                ("unexpected", places - expected),
            )
            if different
        ]
        raise DataError(
            f"{where} is no CIFAR-10: {'; '.join(texts)}. Expected train/<class>/ and "
            f"test/<class>/ with the classes {', '.join(CLASSES)}."
        )
    ordered = [
        [item for p, name, item in found if (p, name) == (part, of_class)]
        for part in ("train", "test")
        for of_class in CLASSES
    ]
    items = [item for of_class in ordered for item in of_class]
    images = decode_images(items, _SIDE, exactly(_SIDE, _SIDE))
    counts = [len(of_class) for of_class in ordered]
    train_counts, test_counts = counts[: len(CLASSES)], counts[len(CLASSES) :]
    labels = np.concatenate([class_labels(train_counts), class_labels(test_counts)])
    return make_dataset(_name(items), CLASSES, *cut(images, labels, sum(train_counts)))


def _name(items: Sequence[Item]) -> str:
    """Which files the pictures went through: their pixels need not be the publisher's."""
    suffixes = {PurePath(item.name).suffix.lower() for item in items}
    if suffixes & {".jpg", ".jpeg", ".jpe", ".jfif"}:
        return f"{NAME} (JPEG)"
    return f"{NAME} ({', '.join(sorted(s.removeprefix('.').upper() for s in suffixes))})"
