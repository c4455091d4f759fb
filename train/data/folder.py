"""folder:PATH, a data set of the user's own: class folders of images of any size."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from train.data.arrays import Dataset, class_labels, cut, make_dataset
from train.data.errors import DataError
from train.data.images import Item, decode_images, resized
from train.data.listing import Listing, Picture, list_folder
from train.data.progress import say
from train.data.source import Source, key_of
from train.data.split import take

_HELD_OUT_FRACTION = 0.2


def find(path: str, size: int, root: Path) -> Source:
    """The folder as it is now; a file added, removed or changed gives another prepared form.

    ``path`` may begin with ~; a relative one is looked for in ``root``, then where we are.

    Raises:
        DataError: there is no such folder, or it is no data set (see ``list_folder``), or a class
            has a single image and a part has to be held out.
    """
    given = Path(path).expanduser()
    places = [given] if given.is_absolute() else [root / given, given]
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        looked = " and ".join(str(place.absolute()) for place in places)
        raise DataError(f"no folder {path!r}: looked for {looked}. Expected a folder of images.")
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
        say(f"{listing.folder}: {count:,} entries are no images in a class folder, e.g. {example}")
    parts = [listing.train] if listing.held_out is None else [listing.train, listing.held_out]
    pictures = [picture for part in parts for of_class in part for picture in of_class]
    # one call for both parts, so that all damaged files are told at once
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
