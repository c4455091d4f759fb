"""Images per second of the forms of a step, taken in turns by the same ranks.

Usage: forms.py MODEL DATASET BATCH SECONDS ROUNDS STORE OPERATIONS FORM...; each rank prints, as
JSON, {form: [its images/s in each round], "matrix": its FLOP/s of a matrix product in each round,
"communication": the seconds of an all-reduce by itself in each round, where a form is in parts,
"flop": [of one training image]}.

OPERATIONS are "deterministic" or "free". A form is "parts" (three graphs with the host between
them), a number (the steps of one call), or "plain" (the usual script: float32 images from memory,
shuffled by tf.data, model.fit with Horovod's DistributedOptimizer).
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from train.config.optimizer import Sgd
from train.config.run import RunConfig
from train.config.technique import Technique
from train.data.registry import load
from train.distributed.launch import read_launch
from train.distributed.world import start

RATE = 0.001


def main() -> None:
    model, dataset, batch, seconds, rounds, store, operations, *forms = sys.argv[1:]
    launch = read_launch(os.environ)
    technique = Technique(
        name="t", base_lr=RATE, base_batch=1, optimizer=Sgd(),
        normalisation="none" if model == "cnn" else "batch_norm",
    )  # fmt: skip
    config = RunConfig(
        dataset=dataset, model=model, technique=technique, gpus=launch.size,
        batch_per_rank=int(batch), epochs=1, seed=0, deterministic=operations == "deterministic",
    )  # fmt: skip
    runtime = start(config, launch)
    import tensorflow as tf

    data = load(dataset, None, Path(store), Path(store))
    apart: list[float] = []  # seconds of the all-reduces of steps in parts
    take, flop = own_step(config, runtime, data, apart)
    matrix = tf.random.stateless_normal([1024, 1024], [1, 2])
    found: dict[str, list[float]] = {form: [] for form in [*forms, "communication", "matrix"]}
    counts = {form: steps_in(float(seconds), take, form) for form in forms if form != "plain"}
    first = 0

    def others(number: int) -> None:
        """A round of all forms but the plain one, each round from another one on."""
        nonlocal first
        own = list(counts)
        for form in own[number % len(own) :] + own[: number % len(own)]:
            together()
            apart.clear()
            begin, taken = time.perf_counter(), 0
            while taken < counts[form]:
                more = take(form, first)
                taken, first = taken + more, first + more
            found[form].append(taken * int(batch) / (time.perf_counter() - begin))
            if apart:
                found["communication"].append(statistics.fmean(apart))
        begin = time.perf_counter()
        for _ in range(10):
            tf.matmul(matrix, matrix).numpy()
        found["matrix"].append(10 * 2 * 1024**3 / (time.perf_counter() - begin))

    if "plain" in forms:
        fit(config, runtime, data, float(seconds), int(rounds), found["plain"], others)
    else:
        for number in range(int(rounds)):
            others(number)
    print(json.dumps(found | {"flop": [flop]}))


def together() -> None:
    import horovod.tensorflow as hvd

    hvd.allreduce(np.zeros(1))


def own_step(
    config: RunConfig, runtime: Any, data: Any, apart: list[float]
) -> tuple[Callable[[str, int], int], float]:
    """What takes a step, or several, of a form, and tells how many; FLOP of one training image.
    ``apart`` gets the seconds of all-reduces."""
    from train.data.batches import Batches, process_batches
    from train.run.build import build_parts
    from train.trainer.stepper import calls

    parts = build_parts(config, data, runtime)
    plan = parts.plan.epochs[0]

    def epochs(per_call: int) -> Iterator[Batches]:
        while True:
            yield from process_batches(
                config, data, parts.used, plan, runtime.rank, runtime.size, 1,
                calls(plan.steps, per_call, None),
            )  # fmt: skip

    batches: dict[str, Iterator[Batches]] = {}

    def take(form: str, first: int) -> int:
        if form not in batches:
            batches[form] = epochs(1 if form == "parts" else int(form))
        own = next(batches[form])
        if form == "parts":
            apart.append(parts.step(own.of_step(0), RATE, first).parts.communication_s)
            return 1
        return len(parts.step.several(own, [RATE] * len(own), first))

    return take, training_flop(parts.model)


def training_flop(model: Any) -> float:
    """Of the products of one image: forwards, and backwards by the weights and by the inputs."""
    import tensorflow as tf

    products = (tf.keras.layers.Conv2D, tf.keras.layers.Dense)
    return sum(
        3 * 2 * math.prod(layer.kernel.shape) * math.prod(layer.output_shape[1:-1])
        for layer in model._flatten_layers()
        if isinstance(layer, products)
    )


def steps_in(seconds: float, take: Callable[[str, int], int], form: str) -> int:
    """Steps that last so long; as many on all ranks."""
    import horovod.tensorflow as hvd

    take(form, 0)  # traces the graph
    begin = time.perf_counter()
    taken = sum(take(form, 0) for _ in range(3))
    each = float(hvd.allreduce(np.float64((time.perf_counter() - begin) / taken)))
    return max(12, int(seconds / each))


def fit(
    config: RunConfig, runtime: Any, data: Any, seconds: float, rounds: int, rates: list[float],
    between: Callable[[int], None],
) -> None:  # fmt: skip
    """The plain script; ``between`` its epochs comes what it is compared with."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    from train.models.layers import StepSeed
    from train.models.networks import build_model

    batch = config.batch_per_rank
    images = data.train_x[runtime.rank :: runtime.size].astype(np.float32)
    labels = data.train_y[runtime.rank :: runtime.size]
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).repeat()
    batches = batches.shuffle(10_000, seed=runtime.rank).batch(batch)
    model = build_model(config, images.shape[1:], len(data.classes), StepSeed(0))
    optimizer = tf.keras.optimizers.SGD(RATE)
    if runtime.size > 1:
        from horovod.tensorflow import keras

        optimizer = keras.DistributedOptimizer(optimizer)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    model.fit(batches, steps_per_epoch=2, verbose=0)
    begin = time.perf_counter()
    model.fit(batches, steps_per_epoch=10, verbose=0)
    each = float(hvd.allreduce(np.float64((time.perf_counter() - begin) / 10)))
    steps = max(1, int(seconds / each))

    class Between(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            together()
            self.begin = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            rates.append(steps * batch / (time.perf_counter() - self.begin))
            between(epoch)

    model.fit(
        batches, steps_per_epoch=steps, epochs=rounds, verbose=0, callbacks=[Between()]
    )  # fmt: skip


if __name__ == "__main__":
    main()
