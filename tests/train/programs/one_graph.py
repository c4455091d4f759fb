"""The same steps on every rank in three graphs and in one; prints how far the weights are apart.

Usage: one_graph.py DATA_FOLDER [CASE]
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from jobs.cell.launch import RENDEZVOUS
from tests.builders import config, row
from tests.train.step.test_step_parts import together as block_of
from train.config.optimizer import Lamb, Sgd
from train.data.registry import DatasetFiles
from train.data.sampling import rank_batches
from train.distributed.launch import read_launch
from train.distributed.world import start

STEPS, BATCH, RATE = 12, 16, 0.003
LATE_S = 1.0  # of rank 1 after rank 0, at each of the last steps of all
LATE_STEPS = 3
#: Of reduction.BUCKET_BYTES and BUCKETS: all gradients in one bucket, and each in one of its own.
JOINED, EACH, AS_TRAINED = (1 << 30, 1), (1, 1 << 30), (1 << 16, 6)


def arrive(rank: int, ready: Path) -> None:
    """At the all-reduce: rank 1 late after rank 0, however long the others compute."""
    if rank == 0:
        ready.touch()
    elif rank == 1:
        while not ready.exists():
            time.sleep(0.01)
        time.sleep(LATE_S)


def main() -> None:
    launch = read_launch(os.environ)
    size = launch.size
    normalised = row(normalisation="batch_norm")
    of = config(model="resnet_mini", technique=normalised, gpus=size, batch_per_rank=BATCH, seed=5)
    runtime = start(of, launch)

    from train.models.layers import StepSeed
    from train.models.networks import build_model
    from train.step import reduction
    from train.step.back_end import OverRanks
    from train.step.loss_scale import NoLossScale
    from train.step.measured import MeasuredStep
    from train.step.optimizers.build import build_optimizer
    from train.step.step import TrainStep

    data = DatasetFiles("digits", Path(sys.argv[1])).load()
    plan = rank_batches("partition", len(data.train_y), 5, 0, runtime.rank, size, BATCH)[:STEPS]
    given = [[(data.train_x[rows], data.train_y[rows])] for rows in plan]
    singles = [block_of([own]) for own in given]
    result: dict[str, Any] = {}
    for name, optimizer, compression, cut in (
        ("sgd, one bucket", Sgd(momentum=0.9), "none", JOINED),
        ("sgd, each by itself", Sgd(momentum=0.9), "none", EACH),
        ("sgd, buckets as trained", Sgd(momentum=0.9), "none", AS_TRAINED),
        ("lamb, fp16", Lamb(), "fp16", AS_TRAINED),
        ("lamb, bf16", Lamb(), "bf16", EACH),
    ):
        if sys.argv[2:] not in ([], [name]):
            continue
        reduction.BUCKET_BYTES, reduction.BUCKETS = cut
        trained = []
        for together in (False, True):
            model = build_model(of, (8, 8, 1), 10, seed := StepSeed(1))
            first = [variable.numpy() for variable in model.trainable_variables]
            technique = row(optimizer=optimizer, compression=compression)
            made = build_optimizer(optimizer, model.trainable_variables)
            ranks = OverRanks(technique, size, NoLossScale())
            step = TrainStep(model, made, technique, seed, ranks, NoLossScale())
            measured = MeasuredStep(step)
            if together:
                for begin in range(0, STEPS, 4):
                    step(block_of(given[begin : begin + 4]), [RATE] * 4, begin)
            else:
                for number, own in enumerate(singles):
                    measured(own, RATE, number)
            trained.append([variable.numpy() for variable in model.variables])
        measured(
            singles[0], RATE, STEPS
        )  # traces the graphs of a sampled step: seconds, unlike ones
        parts = []
        for number in range(LATE_STEPS if size > 1 else 0):
            ready = Path(f"{os.environ[RENDEZVOUS]}-{len(result)}-{number}")
            step.beat = lambda *_, rank=runtime.rank, mark=ready: arrive(rank, mark)
            parts.append(measured(singles[0], RATE, STEPS + 1 + number).parts._asdict())
        result[name] = {
            "parts": parts,
            "off": max(float(np.abs(a - b).max()) for a, b in zip(*trained, strict=True)),
            "moved": max(
                float(np.abs(a - b.numpy()).max())
                for a, b in zip(first, model.trainable_variables, strict=True)
            ),
            "hash": hashlib.sha256(
                b"".join(variable.numpy().tobytes() for variable in model.trainable_variables)
            ).hexdigest(),
        }
    print(json.dumps(result))


main()
