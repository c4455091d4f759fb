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
from train.config.datasets import ARRAYS_PREFIX, DATASETS, FORMS_NAME, forms_key, read_forms
from train.config.run import RunConfig
from train.errors import ConfigError, is_writable
from train.program.environment import environment_of
from train.record.atomic import write_atomically


def store_for(data: Path, results: Path) -> Path:
    """Where prepared data go unless STORE= names a folder: beside the raw data, or where these are
    read-only beside the results, which all nodes see, too."""
    beside, own = data / "prepared", results / ".prepared"
    return own if is_writable(own) and not is_writable(beside) else beside


def train_images(
    configs: Iterable[RunConfig], data: Path, store: Path, sweep: Path | None = None
) -> dict[tuple[str, int | None], int]:
    """(data set, image size) -> training images, of every data set in use.

    With ``sweep``, the folder of its results, it makes all data ready for the ranks, and notes
    there which prepared forms are theirs. A plan leaves published sets alone, since their sizes are
    known.

    Raises:
        ConfigError: a data set is missing or damaged (its program has printed what to do), or a
            cell cannot be trained on images of its shape.
    """
    cells: dict[tuple[str, int | None], list[RunConfig]] = {}
    for config in sorted(configs, key=lambda c: (c.dataset, c.image_size or 0)):
        cells.setdefault((config.dataset, config.image_size), []).append(config)
    images, forms = {}, {}
    for key, own in cells.items():
        if key[0] in DATASETS and sweep is None:
            images[key] = DATASETS[key[0]].train_images
        else:
            images[key], forms[forms_key(*key, data)] = _fetched(*key, data, store, own)
    if sweep is not None:
        # of an earlier form of the sweep, whose cells may be in the queue
        known = read_forms(sweep)
        if known | forms != known:
            sweep.mkdir(parents=True, exist_ok=True)
            write_atomically(sweep / FORMS_NAME, json.dumps(known | forms, indent=2))
    return images


def _fetched(
    dataset: str, image_size: int | None, data: Path, store: Path, cells: Iterable[RunConfig]
) -> tuple[int, str]:
    """Training images, and the name of the prepared form."""
    argv = [sys.executable, "-m", "train.data", "prepare", dataset]
    argv += ["--root", str(data), "--store", str(store)]
    argv += [] if image_size is None else ["--image-size", str(image_size)]
    environment = environment_of("command", os.environ) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise ConfigError(f"the data set {dataset} is not ready (see above); nothing was started")
    try:
        facts = json.loads(done.stdout)
        images, form = int(facts["train_images"]), str(facts["form"])
        shape = tuple(facts["shape"]) if dataset.startswith(ARRAYS_PREFIX) else ()
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the program that reads the data set {dataset} printed {done.stdout[:200]!r}, "
            'expected {"train_images": N, "form": NAME}: report it as a fault of the suite'
        ) from error
    for config in cells if shape else ():
        if text := config.image_problem(shape):
            raise ConfigError(f"cell {config.cell_id()}: {text}")
    return images, form
