"""Rows whose two ranks act together in training: killed and resumed, and never killed; prints
{row: {"resumed_from", "straight", "resumed"}}, the latter hashes of all weights with the curve.

Usage: resumed.py OUT_FOLDER ROW...
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.train.trainer.test_resume import toy
from tests.train.trainer.test_trainer import Killed, curve, killed_at, trainer
from train.distributed.launch import read_launch
from train.distributed.world import start

MOMENT = "settling the batch-norm statistics after epoch 3"


def main() -> None:
    out, names = Path(sys.argv[1]), sys.argv[2:]
    launch = read_launch(os.environ)
    runtime = start(toy(names[0], launch.size), launch)

    told = {}
    for name in names:
        build = partial(trainer, toy(name, runtime.size), runtime)
        whole, killed = out / name / "whole", out / name / "killed"
        for folder in (whole, killed):
            folder.mkdir(parents=True, exist_ok=True)
        straight = build(whole, 1, lambda _: None).train(resume=False)
        with suppress(Killed):
            build(killed, 1, killed_at(MOMENT)).train(resume=False)
        resumed = build(killed, 2, lambda _: None).train(resume=True)
        told[name] = {
            "resumed_from": resumed.resumed_from,
            "straight": [straight.weights_sha256, curve(straight.epochs)],
            "resumed": [resumed.weights_sha256, curve(resumed.epochs)],
        }
    print(json.dumps(told))


main()
