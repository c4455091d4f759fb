"""Find CIFAR-10: the publisher's pickles, or the same pictures as image files, packed or not.

Looked for in the data folder and its sub-folder cifar10/, in this order: cifar-10-batches-py/,
cifar-10-python.tar.gz, a folder with train/<class>/ and test/<class>/, a tar archive of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from train.data import cifar_images, cifar_pickles
from train.data.download import Remote
from train.data.listing import held_out_folder, list_folder
from train.data.source import Source, key_of, stat_key

_SLUG = "cifar10"
_PICKLES = "cifar-10-batches-py"
_NAMES = ("cifar10", "cifar-10", "CIFAR-10-images", "cifar10-imagefolder")
_ARCHIVES = (".tar.xz", ".tar.gz", ".tgz", ".tar.bz2", ".tar")


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
        if held_out_folder(folder) and (folder / "train" / cifar_images.CLASSES[0]).is_dir():
            listing = list_folder(folder)
            key = key_of("images", list(listing.pictures()))
            return Source(_SLUG, key, partial(cifar_images.from_folder, listing))
    for archive in (b / f"{name}{end}" for b in bases for name in _NAMES for end in _ARCHIVES):
        if archive.is_file():
            decode = partial(cifar_images.from_archive, archive)
            return Source(_SLUG, key_of("images", stat_key([archive])), decode)
    return None
