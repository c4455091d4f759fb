"""Ranks that draw the same images, or one rank that takes as many steps: prints the hash of all
weights, the last epoch, and what the record says about the ranks' gradients.

Usage: same_images.py OUT_FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.builders import config
from tests.train.trainer.test_trainer import trainer
from train.config.optimizer import Adam
from train.config.technique import Technique
from train.distributed.launch import read_launch
from train.distributed.world import start

BATCH = 16


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    launch = read_launch(os.environ)
    # the regime of a batch of two ranks ends one rank's epoch of five steps after the second
    technique = Technique(
        name="t", base_lr=0.01, base_batch=2 * BATCH, normalisation="batch_norm",
        optimizer=Adam(), regime_adaptation=True,
    )  # fmt: skip
    asked = config(
        model="resnet_mini", technique=technique, epochs=1, gpus=launch.size, batch_per_rank=BATCH,
        partition="same",
    )  # fmt: skip
    runtime = start(asked, launch)
    found = trainer(asked, runtime, out, 1, lambda *_: None).train()
    (epoch,) = found.epochs
    print(
        json.dumps(
            {
                "weights": found.weights_sha256,
                "steps": epoch.steps,
                "images": epoch.images,
                "loss": epoch.train_loss,
                "accuracy": epoch.train_accuracy,
                "validation_loss": epoch.validation_loss,
                "alarms": found.alarms,
                "noise": epoch.noise,
            }
        )
    )


main()
