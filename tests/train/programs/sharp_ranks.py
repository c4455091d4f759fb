"""The sharpness of one network as every rank finds it; prints it.

Usage: sharp_ranks.py DATA_FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from tests.builders import config
from train.data.registry import load
from train.distributed.communicator import Ranks
from train.distributed.launch import read_launch
from train.distributed.world import start


def main() -> None:
    launch = read_launch(os.environ)
    runtime = start(config(gpus=launch.size), launch)

    from train.models.layers import StepSeed
    from train.models.networks import build_model
    from train.trainer.sharpness import sharpness

    data = load("digits", None, Path(sys.argv[1]))
    model = build_model(config(), (8, 8, 1), 10, StepSeed(1))
    used = np.arange(len(data.train_y))
    found = sharpness(model, data, used, 101, Ranks(runtime.rank, runtime.size))
    print(found.model_dump_json())


main()
