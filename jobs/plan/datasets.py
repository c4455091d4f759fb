"""Sizes of the data sets that a sweep uses: found, and fetched once, before anything is submitted.

The data code belongs to the ranks' side, so it runs as a program of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from jobs.messages import ROOT
from train.config.datasets import DATASETS
from train.config.run import RunConfig
from train.errors import ConfigError

DataKey = tuple[str, int | None]


def facts_argv(key: DataKey, data: Path, store: Path) -> list[str]:
    dataset, image_size = key
    argv = [sys.executable, "-m", "train.data", "facts", dataset]
    argv += ["--root", str(data), "--store", str(store)]
    return argv if image_size is None else [*argv, "--image-size", str(image_size)]


def planned_images(configs: Sequence[RunConfig], data: Path, store: Path) -> dict[DataKey, int]:
    """As :func:`train_images`, without fetching anything: published sets have a known size.

    Raises:
        ConfigError: a folder of images is missing or damaged.
    """
    folders = [config for config in configs if config.dataset not in DATASETS]
    published = {
        (config.dataset, config.image_size): DATASETS[config.dataset].train_images
        for config in configs
        if config.dataset in DATASETS
    }
    return published | train_images(folders, data, store)


def train_images(configs: Iterable[RunConfig], data: Path, store: Path) -> dict[DataKey, int]:
    """Training images of every data set in use; makes the data ready for the ranks.

    Raises:
        ConfigError: a data set is missing or damaged; its program has said what to do.
    """
    keys = sorted({(config.dataset, config.image_size) for config in configs}, key=str)
    found = {}
    for key in keys:
        done = subprocess.run(
            facts_argv(key, data, store), stdout=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        if done.returncode != 0:
            raise ConfigError(
                f"the data set {key[0]} is not ready (see above); nothing was started"
            )
        try:
            found[key] = int(json.loads(done.stdout)["train_images"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"the program that reads the data set {key[0]} printed {done.stdout[:200]!r}, "
                'expected {"train_images": N}: report it as a fault of the suite'
            ) from error
    return found
