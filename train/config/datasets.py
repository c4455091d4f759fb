"""How data sets are named, and what is known of each before it is loaded. The standard library is
enough: the preflight reads this file in any image."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from train.config.networks import split_hash
from train.errors import ConfigError, expanded, read_whole, unknown

#: Data sets, too: a folder of images (folder:PATH), a file of arrays (arrays:FILE.npz@SHA256).
FOLDER_PREFIX, ARRAYS_PREFIX = "folder:", "arrays:"
#: File of a sweep's results: the prepared form of each data set. Its ranks list no raw files.
FORMS_NAME = "forms.json"
FOLDER_SIDE = 64  # pixels of a folder's images where nothing is said


class DatasetFacts(NamedTuple):
    """Facts of a data set whose content is fixed by its publisher."""

    train_images: int
    validation_images: int
    shape: tuple[int, int, int]  # height, width, channels
    classes: int
    characters: bool = False  # a mirrored image is another character, or none


DATASETS: dict[str, DatasetFacts] = {
    # 1,797 images; the stratified split (8 of 10 to training) is ours, with a fixed seed
    "digits": DatasetFacts(1437, 360, (8, 8, 1), 10, characters=True),
    "cifar10": DatasetFacts(50_000, 10_000, (32, 32, 3), 10),
    "fashion_mnist": DatasetFacts(60_000, 10_000, (28, 28, 1), 10),
    "mnist": DatasetFacts(60_000, 10_000, (28, 28, 1), 10, characters=True),
    # random pixels and labels of CIFAR's shape, for throughput only
    "synthetic": DatasetFacts(50_000, 10_000, (32, 32, 3), 10),
}


def check_dataset(name: str) -> None:
    """Raises: ConfigError: it names no data set; with the nearest and all known names."""
    if name in DATASETS or (name.startswith(FOLDER_PREFIX) and name != FOLDER_PREFIX):
        return
    if name.startswith(ARRAYS_PREFIX):
        if parse_arrays(name)[0].endswith(".npz"):
            return
        raise ConfigError(f"dataset {name!r} found, expected {ARRAYS_PREFIX}FILE.npz")
    known = [*DATASETS, f"{FOLDER_PREFIX}PATH", f"{ARRAYS_PREFIX}FILE.npz"]
    raise ConfigError(unknown("dataset", name, known))


def parse_arrays(name: str) -> tuple[str, str | None]:
    """File and sha256 of ``arrays:FILE.npz@SHA256``; None where a person wrote it without."""
    return split_hash(name.removeprefix(ARRAYS_PREFIX))


@lru_cache(1024)
def dataset_slug(name: str) -> str:
    """Few letters of [a-z0-9_], for names of files."""
    if name.startswith(ARRAYS_PREFIX):
        name = Path(parse_arrays(name)[0]).stem
    slug = re.sub(r"[^a-z0-9_]+", "_", Path(name).name.lower()).strip("_")
    return (re.sub(r"^folder_", "", slug) or "folder")[:24]


def place_of(written: str, data: Path) -> Path:
    """Where a file or folder is that a config names: ``~`` is the home folder, and what is relative
    lies in the folder of the data sets, the same for all ranks wherever they are started."""
    return data / expanded(written)


def forms_key(dataset: str, image_size: int | None, root: Path) -> str:
    """Of a data set in ``FORMS_NAME``. root: folder of the raw data."""
    return json.dumps([dataset, image_size, str(root)])


def read_forms(sweep: Path) -> dict[str, str]:
    """``FORMS_NAME`` of a sweep's folder, without what is no folder's name; {} if it is missing or
    damaged. Raises Unreadable."""
    try:
        found = json.loads(read_whole(sweep / FORMS_NAME) or b"{}")
        pairs = dict(found).items()
    except (ValueError, TypeError):
        return {}
    return {key: name for key, name in pairs if isinstance(name, str) and Path(name).name == name}
