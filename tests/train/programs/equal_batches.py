"""Train a few steps with every optimizer; prints {optimizer: {"hash": ..., "file": ...}}.

Under 2 ranks with batch b, and alone with batch 2b, the same global batches are used.
Usage: equal_batches.py OUT_FOLDER BATCH_PER_RANK DATA_FOLDER
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np

from train.config.optimizer import Adam, AdamW, Lamb, Larc, Lars, Muon, NovoGrad, NovoGradTfa, Sgd
from train.config.run import RunConfig
from train.config.technique import Technique
from train.data.registry import load
from train.data.sampling import rank_batches
from train.distributed.launch import read_launch
from train.distributed.world import start

OPTIMIZERS = {
    "sgd": Sgd(),
    "sgd_momentum": Sgd(momentum=0.9),
    "sgd_nesterov": Sgd(momentum=0.9, nesterov=True),
    "adam": Adam(),
    # decay and adaptation of every tensor, so that each path of the algorithm is taken
    "lamb": Lamb(weight_decay=0.01, exclude=()),
    "lamb_excluding": Lamb(weight_decay=0.01),
    "adamw": AdamW(weight_decay=0.1),
    "novograd": NovoGrad(weight_decay=0.01),
    "novograd_tfa": NovoGradTfa(weight_decay=0.01),
    "lars": Lars(),
    # a trust so small that it binds in some layers of this network, and in others not
    "larc": Larc(trust=1e-4),
    # the network has no normalisation, which fixed norms of convolutions would need
    "muon": Muon(rest="lamb", dense=True, fix_norm=False),
}
STEPS = 20
RATES = {
    "adam": 0.002, "lamb": 0.01, "lamb_excluding": 0.01, "adamw": 0.002, "novograd": 0.002,
    "novograd_tfa": 0.002, "lars": 2.0,
    # every direction of a kernel moves by the rate, also those whose gradient is mostly round-off
    "muon": 0.002,
}  # fmt: skip


def config_for(optimizer: object, gpus: int, batch: int) -> RunConfig:
    technique = Technique(name="test", base_lr=1.0, base_batch=1, optimizer=optimizer)
    return RunConfig(
        dataset="digits", model="resnet_mini", technique=technique, gpus=gpus,
        batch_per_rank=batch, epochs=1, seed=3,
    )  # fmt: skip


def main() -> None:
    out, batch, data_folder = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    launch = read_launch(os.environ)
    runtime = start(config_for(Adam(), launch.size, batch), launch)

    from train.models.layers import StepSeed
    from train.models.networks import build_model
    from train.optimizers import build_optimizer
    from train.step.train_step import TrainStep

    data = load("digits", None, data_folder)
    plan = rank_batches("partition", len(data.train_y), 3, 0, runtime.rank, runtime.size, batch)
    result = {}
    for name, optimizer_config in OPTIMIZERS.items():
        seed = StepSeed(1)
        config = config_for(optimizer_config, runtime.size, batch)
        model = build_model(config, (8, 8, 1), 10, seed)
        optimizer = build_optimizer(optimizer_config, model.trainable_variables)
        step = TrainStep(model, optimizer, config.technique, seed, size=runtime.size)
        for number in range(STEPS):
            rows = plan[number % len(plan)]
            # a rate that changes on the way, so that momentum correction is in the comparison
            rate = RATES.get(name, 0.02) * (1 if number < 8 else 2)
            step([(data.train_x[rows], data.train_y[rows])], rate, number)
        weights = [variable.numpy() for variable in model.trainable_variables]
        digest = hashlib.sha256(b"".join(w.tobytes() for w in weights)).hexdigest()
        file = out / f"{name}-{runtime.size}-{runtime.rank}.npz"
        np.savez(file, *weights)
        result[name] = {"hash": digest, "file": str(file)}
    print(json.dumps(result))


main()
