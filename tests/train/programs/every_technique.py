"""Every row of jobs/techniques.yaml; prints {row: {"hash": ..., "file": ...}}: of the weights after
the last step, and where those after a few steps are.

The same global batches of digits are used whether they are cut among ranks, accumulated, or taken
whole. Usage: every_technique.py OUT_FOLDER BATCH_PER_RANK ACCUMULATION DATA_FOLDER
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from jobs.config.techniques import changed, load_techniques
from train.config.run import RunConfig
from train.data.registry import DatasetFiles
from train.distributed.launch import read_launch
from train.distributed.world import start

# two: momentum is in the second, and the kinks of ReLU and pooling have not yet made large
# differences of small ones
STEPS, GHOST, BASE_BATCH = 2, 8, 16
MORE_STEPS = 20  # after which ranks must still be bit-identical


def config_for(name: str, gpus: int, batch: int, accumulation: int) -> RunConfig:
    row = load_techniques()[name]
    changes: dict[str, object] = {"warmup_epochs": min(1, row["warmup_epochs"])}
    if row["normalisation"] == "ghost_batch_norm":
        changes["ghost_batch"] = GHOST  # divides every batch of this comparison
    if row["noise_batch"]:
        changes["noise_batch"] = BASE_BATCH
    if row["batch_growth"]["name"] == "grow":
        changes["batch_growth"] = {"milestones": [0.5], "factor": 2}
    technique = {"name": name, "base_batch": BASE_BATCH, **changed(row, changes)}
    data = {
        "dataset": "digits", "model": "resnet_mini", "technique": technique, "gpus": gpus,
        "batch_per_rank": batch, "accumulation": accumulation, "epochs": 2, "seed": 3,
    }  # fmt: skip
    if technique["augmentation"]["name"] != "as_they_are":
        technique["augmentation"] = {"name": "as_they_are"}
    return RunConfig.model_validate_json(json.dumps(data))


def main() -> None:
    out, batch, accumulation = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    launch = read_launch(os.environ)
    runtime = start(config_for("naive", launch.size, batch, accumulation), launch)

    from train.data.batches import Feed
    from train.run.build import build_parts

    data = DatasetFiles("digits", Path(sys.argv[4])).load()
    rank, result = runtime.rank, {}
    for name, row in load_techniques().items():
        if runtime.size * accumulation == 1 and row["normalisation"] == "batch_norm":
            continue  # it sees how a batch is cut
        if accumulation > 1 and (
            row["normalisation"] == "sync_batch_norm" or row["reduction"] == "adasum"
        ):
            continue  # between ranks only
        config = config_for(name, runtime.size, batch, accumulation)
        parts = build_parts(config, data, runtime)
        # what the network computes: biases before batch norm have no gradient but round-off, which
        # Adam turns into whole steps, and no effect
        probe = data.train_x[: 2 * BASE_BATCH]
        before = parts.model(probe, training=True).numpy()
        wanted = MORE_STEPS if runtime.size > 1 else STEPS
        plans = parts.plan.epochs[:2]
        if row["batch_growth"]["name"] == "grow":
            assert plans[1].accumulation == 2 * plans[0].accumulation
            steps = (1, wanted - 1)  # all but the first are grown
        else:
            steps = (len(data.train_y), 0)  # as many as it takes: a loss scale skips some
        feed = Feed(config, data, parts.used, rank, runtime.size)
        batches = chain.from_iterable(
            islice(feed.epoch(plan, [1] * plan.steps), count)
            for plan, count in zip(plans, steps, strict=True)
        )
        file = out / f"{name}-{runtime.size}-{accumulation}-{runtime.rank}.npz"
        applied = 0
        for number, own in enumerate(batches):
            (done,) = parts.step(own, [parts.plan.rate(applied)], number)
            applied += not done.skipped  # a loss scale finds its size first
            if applied == STEPS and not file.exists():
                after = parts.model(probe, training=True).numpy()
                np.savez(file, *weights_of(parts.model), before=before, after=after)
            if applied == wanted:
                break
        bits = b"".join(weight.tobytes() for weight in weights_of(parts.model))
        result[name] = {"hash": hashlib.sha256(bits).hexdigest(), "file": str(file)}
    print(json.dumps(result))


def weights_of(model: Any) -> list[np.ndarray]:
    return [variable.numpy() for variable in model.trainable_variables]


main()
