"""The same batches through our step and through model.fit with hvd.DistributedOptimizer.

Prints {optimizer: largest absolute difference of any weight}. With batch norm in the model.
Usage: fit_parity.py DATA_FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

from tests.builders import config, row
from train.config.optimizer import Adam, Sgd
from train.data.batches import Batches
from train.data.registry import DatasetFiles
from train.data.sampling import rank_batches
from train.distributed.launch import read_launch
from train.distributed.world import start

STEPS, BATCH, RATE = 12, 16, 0.003


def main() -> None:
    normalised = row(normalisation="batch_norm")
    of = config(model="resnet_mini", technique=normalised, gpus=2, batch_per_rank=BATCH, seed=5)
    runtime = start(of, read_launch(os.environ))

    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    from train.models.layers import StepSeed
    from train.models.networks import build_model
    from train.step.back_end import OverRanks
    from train.step.loss_scale import NoLossScale
    from train.step.optimizers.build import build_optimizer
    from train.step.step import TrainStep

    data = DatasetFiles("digits", Path(sys.argv[1])).load()
    plan = rank_batches("partition", len(data.train_y), 5, 0, runtime.rank, 2, BATCH)[:STEPS]
    result = {}
    for name, ours, keras in (
        ("sgd", Sgd(momentum=0.9), lambda: tf.keras.optimizers.SGD(RATE, momentum=0.9)),
        ("adam", Adam(), lambda: tf.keras.optimizers.Adam(RATE)),
    ):
        seed = StepSeed(1)
        model = build_model(of, (8, 8, 1), 10, seed)
        optimizer = build_optimizer(ours, model.trainable_variables)
        technique, scale = row(optimizer=ours), NoLossScale()
        ranks = OverRanks(technique, 2, scale)
        step = TrainStep(model, optimizer, technique, seed, ranks, scale)
        every = plan[:, np.newaxis]
        step(Batches(data.train_x[every], data.train_y[every]), [RATE] * STEPS, 0)

        reference = build_model(of, (8, 8, 1), 10, StepSeed(1))
        reference.compile(
            optimizer=hvd.DistributedOptimizer(keras()),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        rows = plan.reshape(-1)
        before = [variable.numpy().copy() for variable in reference.variables]
        reference.fit(
            data.train_x[rows], data.train_y[rows], batch_size=BATCH, shuffle=False, verbose=0
        )
        moved = max(
            float(np.abs(a - b.numpy()).max())
            for a, b in zip(before, reference.variables, strict=True)
        )
        difference = max(
            float(np.abs(a.numpy() - b.numpy()).max())
            for a, b in zip(model.variables, reference.variables, strict=True)
        )
        result[name] = {"difference": difference, "moved": moved}
    print(json.dumps(result))


main()
