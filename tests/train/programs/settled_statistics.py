"""Batch-norm statistics and validation of two ranks; prints what this rank sees as JSON.

Usage: settled_statistics.py DATA_FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

from tests.builders import config, row
from train.data.registry import DatasetFiles
from train.distributed.launch import read_launch
from train.distributed.world import start
from train.run.provenance import describe_world, provenance_here


def main() -> None:
    of = config(technique=row(normalisation="batch_norm"), gpus=2, seed=5)
    runtime = start(of, read_launch(os.environ))

    import tensorflow as tf

    from train.distributed.communicator import ALONE, Ranks
    from train.models.layers import StepSeed
    from train.models.networks import build_model
    from train.trainer.batch_statistics import reduce_statistics
    from train.trainer.evaluate import Evaluation, Evaluator

    data = DatasetFiles("digits", Path(sys.argv[1])).load()
    model = build_model(of, (8, 8, 1), 10, StepSeed(1))
    layers = [
        layer for layer in model.layers if isinstance(layer, tf.keras.layers.BatchNormalization)
    ]

    def statistics() -> list[list[list[float]]]:
        return [
            [layer.moving_mean.numpy().tolist(), layer.moving_variance.numpy().tolist()]
            for layer in layers
        ]

    def evaluated(ranks: Ranks) -> Evaluation:
        evaluator = Evaluator(of, model, data, ranks)
        return evaluator.evaluation(ranks.summed(evaluator.counts()))

    told = {}
    # the second time far from zero and close together, where E[x^2] - E[x]^2 cancels in fp32
    for offset in (0, 1000):
        rng = np.random.default_rng([7, runtime.rank, offset])
        for layer in layers:
            layer.moving_mean.assign(offset + rng.normal(0, 0.1, layer.moving_mean.shape))
            layer.moving_variance.assign(rng.uniform(0.5, 2, layer.moving_variance.shape))
        before, own_before = statistics(), evaluated(ALONE)
        reduce_statistics(model, runtime.size)
        told[offset] = {
            "before": before,
            "after": statistics(),
            "own_before": own_before,
            "own_after": evaluated(ALONE),
            "together_after": evaluated(runtime.ranks),
        }
    world, _ = describe_world(runtime, provenance_here(of, ()))
    print(json.dumps([*told.values(), world.oversubscribed]))


main()
