"""Sizes of the data sets that a sweep uses: found, and fetched once, before anything is submitted.

The data code belongs to the ranks' side, so it runs as a program of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from jobs.messages import ROOT
from train.config.datasets import ARRAYS_PREFIX, DATASETS
from train.config.run import RunConfig
from train.environment import environment_of
from train.errors import ConfigError, is_writable


def store_for(data: Path, results: Path) -> Path:
    """Where prepared data go unless STORE= names a folder: beside the raw data, or where these are
    read-only beside the results, which all nodes see, too."""
    beside, own = data / "prepared", results / ".prepared"
    return own if is_writable(own) and not is_writable(beside) else beside


def train_images(
    configs: Iterable[RunConfig], data: Path, store: Path, *, fetch: bool = True
) -> dict[tuple[str, int | None], int]:
    """(data set, image size) -> training images, of every data set in use; makes the data ready for
    the ranks. Without ``fetch`` it leaves published sets alone, since their sizes are known.

    Raises:
        ConfigError: a data set is missing or damaged (its program has printed what to do), or a
            cell cannot be trained on images of its shape.
    """
    cells: dict[tuple[str, int | None], list[RunConfig]] = {}
    for config in sorted(configs, key=lambda c: (c.dataset, c.image_size or 0)):
        cells.setdefault((config.dataset, config.image_size), []).append(config)
    return {
        key: DATASETS[key[0]].train_images
        if key[0] in DATASETS and not fetch
        else _fetched(*key, data, store, own)
        for key, own in cells.items()
    }


def _fetched(
    dataset: str, image_size: int | None, data: Path, store: Path, cells: Iterable[RunConfig]
) -> int:
    argv = [sys.executable, "-m", "train.data", "prepare", dataset]
    argv += ["--root", str(data), "--store", str(store)]
    argv += [] if image_size is None else ["--image-size", str(image_size)]
    environment = environment_of("command", os.environ) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise ConfigError(f"the data set {dataset} is not ready (see above); nothing was started")
    try:
        facts = json.loads(done.stdout)
        images = int(facts["train_images"])
        shape = tuple(facts["shape"]) if dataset.startswith(ARRAYS_PREFIX) else ()
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the program that reads the data set {dataset} printed {done.stdout[:200]!r}, "
            'expected {"train_images": N}: report it as a fault of the suite'
        ) from error
    for config in cells if shape else ():
        if text := config.image_problem(shape):
            raise ConfigError(f"cell {config.cell_id()}: {text}")
    return images
