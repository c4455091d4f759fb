"""One step of the course's network in each precision; prints {precision: what became of it}."""

from __future__ import annotations

import json
import os

import numpy as np

from tests.builders import config, row
from train.config.optimizer import Sgd
from train.config.run import RunConfig
from train.distributed.launch import read_launch
from train.distributed.world import start


def config_for(precision: str) -> RunConfig:
    technique = row(normalisation="batch_norm", precision=precision, optimizer=Sgd())
    return config(model="resnet_mini", technique=technique, batch_per_rank=16, seed=5)


def main() -> None:
    runtime = start(config_for("mixed_bfloat16"), read_launch(os.environ))

    from train.data.batches import Batches
    from train.data.dataset import make_dataset
    from train.run.build import build_parts

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (16, 16, 16, 1), dtype=np.uint8)
    labels = np.arange(16) % 4
    data = make_dataset("squares", list("abcd"), (images, labels), (images, labels))
    told = {}
    for precision in ("float32", "mixed_float16", "mixed_bfloat16"):
        parts = build_parts(config_for(precision), data, runtime)
        weights = parts.model.trainable_variables
        before = [weight.numpy() for weight in weights]
        (result,) = parts.step(Batches(images[None, None], labels[None, None]), [0.1], 0)
        moved = [np.abs(w.numpy() - b).max() for w, b in zip(weights, before, strict=True)]
        told[precision] = {
            "loss": result.loss, "norm": float(np.sqrt(result.gradient_sq)),
            "skipped": result.skipped, "moved": float(max(moved)),
            "types": sorted({weight.dtype.name for weight in weights}),
        }  # fmt: skip
    print(json.dumps(told))


main()
