"""python -m train.data: prepare a data set before jobs need it, and say what is in it."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

from train.config.datasets import FOLDER_PREFIX, check_dataset
from train.data.registry import DatasetFiles
from train.data.waiting import say
from train.errors import ConfigError
from train.program.command_line import DEFAULT_DATA, place, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints counts, shape and the prepared form's folder name as one JSON line.

    Exit code: 0 well, 2 the request or the data are wrong.
    """
    parser = argparse.ArgumentParser(prog="python -m train.data", description=__doc__)
    add = parser.add_argument
    add("command", choices=["prepare"], help="find or download raw files, and make what ranks load")
    add("dataset", help="e.g. digits, cifar10, folder:PATH")
    add("--root", type=place, help="folder with the data sets (default: $DATA, else .data)")
    add("--store", type=place, help="folder for prepared forms (default: ROOT/prepared)")
    add("--image-size", type=int, help="side in pixels; folders only (default: 64)")
    options = parser.parse_args(arguments)
    try:
        root = options.root or place(os.environ.get("DATA") or DEFAULT_DATA)
        _check(options.dataset, options.image_size)
        files = DatasetFiles(options.dataset, root, options.image_size, options.store)
        form = files.prepare().name
        data = files.load([form])
    except ConfigError as error:
        say(str(error))
        return 2
    facts = {
        "name": data.name,
        "form": form,
        "train_images": len(data.train_y),
        "validation_images": len(data.validation_y),
        "shape": data.train_x.shape[1:],
        "classes": len(data.classes),
        "fingerprint": data.fingerprint,
    }
    print(json.dumps(facts))
    return 0


def _check(dataset: str, image_size: int | None) -> None:
    """Raises ConfigError: no such data set, or none that has images of this size."""
    check_dataset(dataset)
    if image_size is not None and not dataset.startswith(FOLDER_PREFIX):
        raise ConfigError(f"image size is for {FOLDER_PREFIX}PATH; {dataset} has its own")
    if image_size is not None and not 8 <= image_size <= 1024:  # as in RunConfig.image_size
        raise ConfigError(f"image size {image_size} found, expected 8 to 1024 pixels a side")


if __name__ == "__main__":
    run(main)
