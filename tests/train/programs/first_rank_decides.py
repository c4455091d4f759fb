"""A run whose target has a time limit that only the first rank's clock has passed; prints what each
rank did: {"met", "seconds": [of each epoch], "attempts": [of each epoch]}. Each rank counts other
starts, as with folders of their own.

Usage: first_rank_decides.py OUT_FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tests.train.trainer.test_target_runs import aiming
from tests.train.trainer.test_trainer import trainer
from train.config.run import Target
from train.distributed.awake import Awake
from train.distributed.launch import read_launch
from train.distributed.world import start

TARGET = Target(validation_accuracy=1, within_s=3600)
TIMES = 10**6


def main() -> None:
    out = Path(sys.argv[1])
    launch = read_launch(os.environ)
    asked = aiming(TARGET, gpus=launch.size)
    runtime = start(asked, launch)

    times = TIMES if runtime.rank == 0 else 1
    awake = Awake(lambda: times * time.perf_counter())
    cell = trainer(asked, runtime, out, 5 - runtime.rank, lambda *_: None, awake=awake)
    found = cell.train()
    seconds = [epoch.train_s + epoch.eval_s for epoch in found.epochs]
    met = found.target.met if found.target else None
    attempts = [epoch.attempt for epoch in found.epochs]
    print(json.dumps({"met": met, "seconds": seconds, "attempts": attempts}))


main()
