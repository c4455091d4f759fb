"""All data sets by name: brought into their prepared form once, then loaded in any number of ranks.

Another one needs its facts in train.config.datasets.DATASETS, and here what finds it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from train.config.datasets import DATASETS, FOLDER_PREFIX, FOLDER_SIDE
from train.data.dataset import (
    META,
    Dataset,
    Source,
    read_meta,
    read_prepared,
    write_prepared,
)
from train.data.sources import cifar10, digits_synthetic, image_folder, mnist
from train.data.sources.download import Remote, fetch_all
from train.data.sources.published import OTHERWISE, PLACES, REMOTES
from train.data.waiting import one_at_a_time, say
from train.errors import DataError, explained, is_writable

_FINDERS: Mapping[str, Callable[[Path, Sequence[Remote]], Source | None]] = {
    "digits": digits_synthetic.find_digits,
    "cifar10": cifar10.find,
    "fashion_mnist": partial(mnist.find, mnist.FASHION),
    "mnist": partial(mnist.find, mnist.MNIST),
    "synthetic": digits_synthetic.find_synthetic,
}
#: Keys of forms with the published content, where there is any.
_PUBLISHED: Mapping[str, Callable[[Sequence[Remote]], tuple[str, ...]]] = {
    "cifar10": cifar10.published_keys,
    "fashion_mnist": partial(mnist.published_keys, mnist.FASHION),
    "mnist": partial(mnist.published_keys, mnist.MNIST),
}
_SIZES = range(8, 1025)  # as in RunConfig.image_size


@dataclass(frozen=True)
class Facts:
    """What planning needs to know about a prepared data set."""

    name: str
    train_images: int
    validation_images: int
    shape: tuple[int, int, int]  # height, width, channels
    classes: int
    fingerprint: str


def prepare(
    dataset: str,
    image_size: int | None,
    root: Path,
    *,
    store_root: Path | None = None,
    remotes: Mapping[str, Sequence[Remote]] = REMOTES,
) -> Path:
    """Make the prepared form under ``store_root`` unless it is there; return its image_folder.

    Raw files are looked for in ``root``; where they are gone, the form that was made of them will
    do; else they are downloaded, to ``store_root`` where ``root`` is read-only. Any number of
    processes may ask for it at the same time: one does it, as the ranks of a horovodrun by hand,
    the others wait.

    Args:
        dataset: a name of DATASETS, or folder:PATH.
        image_size: side in pixels of a folder's images, None for 64; None for all other sets.
        root: where the raw files are; a shared, read-only folder will do.
        store_root: where prepared forms are kept, by default ``root``/prepared.

    Raises:
        DataError: unknown data set, or raw files that are missing, damaged or not as expected, or
            no space; the text says what to do.
    """
    return _made(dataset, image_size, root, store_root, remotes)[0]


def _made(
    dataset: str,
    image_size: int | None,
    root: Path,
    store_root: Path | None,
    remotes: Mapping[str, Sequence[Remote]] = REMOTES,
) -> tuple[Path, str]:
    """As ``prepare``; with a remark where the form may not be of the wanted images."""
    with explained(f"preparing {dataset}", root):
        kept = store_root or root / "prepared"
        places = dict.fromkeys((kept, root / "prepared"))  # the second one may be another user's

        def look() -> tuple[Source | None, Path | None, str]:
            source = _find(dataset, image_size, root, remotes)
            for place in places:
                if source is None:
                    made, remark = _earlier(dataset, place, remotes.get(dataset, ()))
                else:
                    made, remark = place / source.folder_name, ""
                if made is not None and (made / META).exists():
                    return source, made, remark
            return source, None, ""

        source, made, remark = look()
        if made is None:
            with one_at_a_time(kept, dataset):
                source, made, remark = look()  # another process may have made it meanwhile
                if made is None:
                    return _make(dataset, source, image_size, root, kept, remotes), ""
        read_prepared(made)  # a damaged one is found now, not by the ranks of a job
        return made, remark


def _make(
    dataset: str,
    source: Source | None,
    image_size: int | None,
    root: Path,
    kept: Path,
    remotes: Mapping[str, Sequence[Remote]],
) -> Path:
    """Write the prepared form; ``source`` None: of raw files that are downloaded first."""
    if source is None:
        # a folder for a whole class, or of another user, may be closed to us
        place = root if is_writable(root / PLACES[dataset]) else kept
        fetch_all(remotes[dataset], place / PLACES[dataset], OTHERWISE[dataset])
        source = _find(dataset, image_size, place, remotes)
        assert source is not None, "what was fetched is not what is looked for"
    say(f"preparing {dataset} in {root}")
    data = source.decode()
    _check_counts(dataset, data)
    made = kept / source.folder_name
    with explained(f"preparing {dataset}", made, "STORE=DIR"):
        write_prepared(made, dataset, data)
    return made


def load(
    dataset: str, image_size: int | None, root: Path, store_root: Path | None = None
) -> Dataset:
    """The data set from its prepared form, which is made first where it is not there.

    Raises:
        DataError: as ``prepare``, or the prepared form is damaged.
    """
    made, remark = _made(dataset, image_size, root, store_root)
    with explained(f"loading {dataset}", root):
        return replace(read_prepared(made), remark=remark)


def facts(
    dataset: str, image_size: int | None, root: Path, store_root: Path | None = None
) -> Facts:
    """Counts and shape from the prepared form, which is made first where it is not there.

    Raises:
        DataError: as ``load``.
    """
    meta = read_meta(prepare(dataset, image_size, root, store_root=store_root))
    train, validation = meta.arrays["train_x"].shape, meta.arrays["validation_x"].shape
    height, width, channels = train[1:]
    return Facts(
        name=meta.name,
        train_images=train[0],
        validation_images=validation[0],
        shape=(height, width, channels),
        classes=len(meta.classes),
        fingerprint=meta.fingerprint,
    )


def _find(
    dataset: str, image_size: int | None, root: Path, remotes: Mapping[str, Sequence[Remote]]
) -> Source | None:
    if dataset.startswith(FOLDER_PREFIX) and dataset != FOLDER_PREFIX:
        size = FOLDER_SIDE if image_size is None else image_size
        if size not in _SIZES:
            raise DataError(
                f"image size {size} found, expected {_SIZES[0]} to {_SIZES[-1]} pixels a side"
            )
        return image_folder.find(dataset.removeprefix(FOLDER_PREFIX), size, root)
    if dataset not in _FINDERS:
        raise DataError(_unknown(dataset))
    if image_size is not None:
        raise DataError(f"image size is for {FOLDER_PREFIX}PATH; {dataset} has its own")
    return _FINDERS[dataset](root, remotes.get(dataset, ()))


def _earlier(dataset: str, kept: Path, remotes: Sequence[Remote]) -> tuple[Path | None, str]:
    """What was prepared of raw files that are gone, and a remark unless it is as published.

    Raises:
        DataError: nothing tells which of several is wanted.
    """
    for key in _PUBLISHED[dataset](remotes) if remotes else ():
        made = kept / f"{dataset}-{key}"
        if (made / META).exists():
            return made, ""
    metas = sorted(kept.glob(f"{dataset}-*/{META}"))
    there = {file.parent: read_meta(file.parent) for file in metas}
    if len({meta.fingerprint for meta in there.values()}) > 1:
        told = "; ".join(f"{made} ({meta.name})" for made, meta in there.items())
        raise DataError(
            f"{dataset}: no raw files found, and several prepared forms of different images: "
            f"{told}. Put the raw files back, or delete the forms that are not wanted."
        )
    for made, meta in there.items():
        remark = (
            f"the raw files of {dataset} are gone: {made.name} ({meta.name}) is used, prepared "
            "earlier from files that were not compared with the published ones"
        )
        say(f"{remark}; delete {made} to have the published ones downloaded")
        return made, remark
    return None, ""


def _check_counts(dataset: str, data: Dataset) -> None:
    expected = DATASETS.get(dataset)
    if expected is None:
        return
    found = (len(data.train_y), len(data.validation_y), data.train_x.shape[1:], len(data.classes))
    if found != expected.sizes:
        raise DataError(
            f"{dataset}: found {found[0]:,} training and {found[1]:,} validation images of shape "
            f"{found[2]}, expected {expected.train_images:,} and {expected.validation_images:,} of "
            f"{expected.shape}. The raw files are incomplete or of another data set; get them anew."
        )


def _unknown(dataset: str) -> str:
    known = [*DATASETS, f"{FOLDER_PREFIX}PATH"]
    near = difflib.get_close_matches(dataset.lower().replace("-", "_"), known, n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"unknown dataset {dataset!r}.{hint} Known: {', '.join(known)}"
