"""What ghost batch norm costs: step times against plain batch norm, all in one run on this machine.

python -m tests.bench.ghost [--threads 1] [--batch 512] [--repetitions 15]

The steps take turns, so that whatever else the machine does meets all alike, and a ratio is the
median of the ratios of neighbours in time. CPU time says the same where other programs compute.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from train.config.run import RunConfig
from train.config.technique import Technique
from train.models.layers import graph
from train.program.command_line import positive

GHOSTS = (256, 128, 64, 32)  # 32 is that of techniques.yaml
BOUND = 1.3


class Cost(NamedTuple):
    """Of one kind of step; ratios are to plain batch norm."""

    seconds: float  # median
    ratio: float
    cpu_ratio: float


Step = Callable[[], object]


def costs(steps: dict[str, Step], base: str, repetitions: int) -> dict[str, Cost]:
    """Time ``steps`` in turn, each round from another one on; ``base`` is what they compare to."""
    names = list(steps)
    wall: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    for step in steps.values():  # traces the graph, fills the caches
        step()
    for round_ in range(repetitions):
        first = round_ % len(names)
        for name in names[first:] + names[:first]:
            begin, begin_cpu = time.perf_counter(), time.process_time()
            steps[name]()
            wall[name].append(time.perf_counter() - begin)
            cpu[name].append(time.process_time() - begin_cpu)
    return {
        name: Cost(
            statistics.median(wall[name]),
            _median_ratio(wall[name], wall[base]),
            _median_ratio(cpu[name], cpu[base]),
        )
        for name in names
    }


def _median_ratio(values: list[float], base: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(values, base, strict=True))


def train_step(batch: int, ghost: int | None) -> Step:
    """Forward, backward and an SGD update of resnet_mini on one fixed batch of random images."""
    import tensorflow as tf

    from train.models.layers import StepSeed
    from train.models.networks import build_model

    kind = "batch_norm" if ghost is None else "ghost_batch_norm"
    technique = Technique.model_validate(
        {"name": kind, "base_lr": 0.01, "base_batch": batch, "normalisation": kind}
        | ({} if ghost is None else {"ghost_batch": ghost})
    )
    config = RunConfig(
        dataset="synthetic", model="resnet_mini", technique=technique, gpus=1,
        batch_per_rank=batch, epochs=1, seed=0,
    )  # fmt: skip
    model = build_model(config, (32, 32, 3), 10, StepSeed(0))
    optimizer = tf.keras.optimizers.SGD(0.01)
    rng = np.random.default_rng(0)
    images = tf.constant(rng.integers(0, 256, (batch, 32, 32, 3), dtype=np.uint8))
    labels = tf.constant(rng.integers(0, 10, batch))

    @graph
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return lambda: float(step())


def main(tokens: Sequence[str]) -> int:
    """Print the costs; 1 where one is above the bound."""
    arguments = argparse.ArgumentParser(prog="python -m tests.bench.ghost", description=__doc__)
    arguments.add_argument("--threads", type=positive(int), default=1)
    arguments.add_argument("--batch", type=positive(int), default=512)
    arguments.add_argument("--repetitions", type=positive(int), default=15)
    given = arguments.parse_args(tokens)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(given.threads)
    tf.config.threading.set_inter_op_parallelism_threads(given.threads)
    tf.config.experimental.enable_op_determinism()  # as in runs
    tf.keras.utils.set_random_seed(0)
    steps = {"plain": train_step(given.batch, None)}
    for ghost in GHOSTS:
        if given.batch % ghost == 0:
            steps[f"ghost {ghost}"] = train_step(given.batch, ghost)
    print(f"resnet_mini, batch {given.batch}, threads {given.threads}: step, ratio, ratio of CPU")
    found = costs(steps, "plain", given.repetitions)
    for name, cost in found.items():
        print(f"{name:10} {cost.seconds:6.3f} s  {cost.ratio:5.2f}  {cost.cpu_ratio:5.2f}")
    dear = [name for name, cost in found.items() if cost.ratio > BOUND]
    told = f"not {', '.join(dear)}" if dear else "all are"
    print(f"at most {BOUND} on a CPU is wanted: {told}")
    return 1 if dear else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
