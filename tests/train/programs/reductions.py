"""Every plain reduction on real ranks; each rank saves what it got to COMPRESSION-RANK.npz.

Prints {compression: {"sent": bytes, "operations": names}}. Usage: reductions.py OUT_FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

from tests.builders import config, row
from train.distributed.launch import read_launch
from train.distributed.world import start

COMPRESSIONS = ("none", "fp16", "bf16")
SHAPES = {"kernel": (37, 11), "bias": (5,), "one": (1,), "scalar": ()}
ROUNDS, LARGE = 5, 1_000_000


def same_sign(rank: int, size: int) -> np.ndarray:
    """Of one sign on all ranks, anywhere in [1e-4, 1e3 / size]."""
    exponents = np.random.default_rng([1, rank]).uniform(-4, 3 - np.log10(size), 20_000)
    signs = np.random.default_rng(2).choice([-1, 1], 20_000)
    return (signs * 10.0**exponents).astype(np.float32)


def gradients(rank: int, size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([3, rank])
    plain = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    # ordinary, a sum above float16, one below its smallest number, zero, no number
    edges = np.array([1.0, 40_000.0, 1e-9, 0.0, np.nan], np.float32)
    return {**plain, "same_sign": same_sign(rank, size), "edges": edges}


def square(rank: int) -> float:
    return 3.0 + 4.0 * rank


def regression(rank: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([5, rank])
    x = rng.normal(size=(64, 20))
    return x, x @ np.linspace(-1, 1, 20) + rng.normal(size=64)


def _bytes_written() -> int:
    """By this process alone, its sockets included (proc(5), /proc/pid/io)."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def main() -> None:
    out = Path(sys.argv[1])
    launch = read_launch(os.environ)
    runtime = start(config(gpus=launch.size), launch)

    import tensorflow as tf

    from train.step.reduction import reducer

    rank, size = runtime.rank, runtime.size
    own = gradients(rank, size)
    told = {}
    for compression in COMPRESSIONS:
        reduce = tf.function(reducer(row(compression=compression), size))
        local = [tf.constant(square(rank))]
        values = [tf.constant(value) for value in own.values()]
        graph = reduce.get_concrete_function(values, local).graph
        operations = [o.type for o in graph.get_operations() if o.type.startswith("Horovod")]
        reduced, (small,) = reduce(values, local)
        saved = {name: value.numpy() for name, value in zip(own, reduced, strict=True)}

        weights, (x, y) = np.zeros(20, np.float32), regression(rank)
        for _ in range(20):
            slope = x.T @ (x @ weights - y) / len(y)
            mean, _ = reduce([tf.constant(slope, tf.float32)], local)
            weights = weights - np.float32(0.1) * mean[0].numpy()

        large = [tf.ones([LARGE])]
        reduce(large, local)
        sent = []
        for _ in range(ROUNDS):
            before = _bytes_written()
            reduce(large, local)
            sent.append(_bytes_written() - before)
        np.savez(out / f"{compression}-{rank}.npz", small=small.numpy(), weights=weights, **saved)
        told[compression] = {"sent": min(sent), "operations": operations}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
