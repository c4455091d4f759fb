"""All data sets by name: brought into their prepared form once, then loaded in all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from train.config.datasets import ARRAYS_PREFIX, DATASETS, FOLDER_PREFIX, FOLDER_SIDE, check_dataset
from train.data.dataset import META, Dataset, Source, name_of, read_prepared, write_prepared
from train.data.sources import arrays, cifar10, image_folder, mnist
from train.data.sources.digits_synthetic import decode_digits, decode_synthetic
from train.data.sources.download import OTHERWISE, PUBLISHED, fetch_all
from train.data.waiting import one_at_a_time, say
from train.errors import DataError, explained, is_writable

_FINDERS: Mapping[str, Callable[[Path], Sequence[Source]]] = {
    "digits": lambda _: [Source(name_of("digits", "digits"), decode_digits)],
    "cifar10": cifar10.find,
    "fashion_mnist": partial(mnist.find, mnist.FASHION),
    "mnist": partial(mnist.find, mnist.MNIST),
    "synthetic": lambda _: [
        Source(name_of("synthetic", "synthetic", DATASETS["synthetic"][:4]), decode_synthetic)
    ],
}
_SIZES = range(8, 1025)  # as in RunConfig.image_size


def load(
    dataset: str,
    image_size: int | None,
    root: Path,
    store_root: Path | None = None,
    forms: Sequence[str] = (),
) -> Dataset:
    """The data set from its prepared form, which is made first if it is not there."""
    made = prepare(dataset, image_size, root, store_root=store_root, forms=forms)
    with explained(f"loading {dataset}", root):
        return read_prepared(made)


def find_forms(dataset: str, image_size: int | None, root: Path) -> tuple[str, ...]:
    """Folder names of the prepared forms that the raw files in ``root`` give: all files of a folder
    of images are listed. Raises as :func:`prepare`."""
    with explained(f"preparing {dataset}", root):
        return tuple(source.folder_name for source in _find(dataset, image_size, root))


def prepare(
    dataset: str,
    image_size: int | None,
    root: Path,
    *,
    store_root: Path | None = None,
    forms: Sequence[str] = (),
) -> Path:
    """Make the prepared form under ``store_root`` (``root``/prepared) unless it is there; return
    its folder.

    Raw files are looked for in ``root``. If they are gone, the form that was made of them is used;
    else published ones are downloaded, to ``store_root`` if ``root`` is read-only. Of processes
    that ask at the same time, one does it. image_size: side in pixels of a folder's images. forms:
    of :func:`find_forms`; where one of them is prepared, no raw file is looked at.

    Raises:
        ConfigError: unknown data set.
        DataError: raw files that are missing, damaged or not as expected, or no space.
    """
    kept = store_root or root / "prepared"
    with explained(f"preparing {dataset}", root):
        if folder := prepared(forms, root, store_root):
            return folder
        # the raw files may be others than those that gave ``forms``
        forms = find_forms(dataset, image_size, root)
        if folder := prepared(forms, root, store_root):
            return folder
        with one_at_a_time(kept, dataset):  # another process may have made it meanwhile
            return prepared(forms, root, store_root) or _make(dataset, image_size, root, kept)


def prepared(forms: Sequence[str], root: Path, store_root: Path | None) -> Path | None:
    """The folder of the first of these forms that is there."""
    # the second store may be another user's
    stores = (store_root or root / "prepared", root / "prepared")
    folders = (store / form for form in forms for store in stores)
    return next((folder for folder in folders if (folder / META).exists()), None)


def _make(dataset: str, image_size: int | None, root: Path, kept: Path) -> Path:
    source, *_ = _find(dataset, image_size, root)
    if source.decode is None:
        # a folder for a whole class, or of another user, may be closed to us
        place = root if is_writable(root / dataset) else kept
        fetch_all(PUBLISHED[dataset], place / dataset, OTHERWISE.get(dataset, ""))
        source, *_ = _find(dataset, image_size, place)
        assert source.decode is not None, "what was fetched is not what is looked for"
    say(f"preparing {dataset} in {root}")
    data = source.decode()
    made = kept / source.folder_name
    with explained(f"preparing {dataset}", made, "STORE=DIR"):
        write_prepared(made, data)
    return made


def _find(dataset: str, image_size: int | None, root: Path) -> Sequence[Source]:
    """The form whose raw files are in ``root``; without any, all forms that could be made."""
    check_dataset(dataset)
    if dataset.startswith(FOLDER_PREFIX):
        size = FOLDER_SIDE if image_size is None else image_size
        if size not in _SIZES:
            raise DataError(
                f"image size {size} found, expected {_SIZES[0]} to {_SIZES[-1]} pixels a side"
            )
        return [image_folder.find(dataset.removeprefix(FOLDER_PREFIX), size, root)]
    if image_size is not None:
        raise DataError(f"image size is for {FOLDER_PREFIX}PATH; {dataset} has its own")
    if dataset.startswith(ARRAYS_PREFIX):
        return [arrays.find(dataset, root)]
    return _FINDERS[dataset](root)
