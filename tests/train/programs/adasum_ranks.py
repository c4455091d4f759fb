"""Adasum on real ranks; each rank saves what it got to adasum-RANK.npz.

Usage: adasum_ranks.py OUT_FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from tests.builders import config, row
from train.distributed.launch import read_launch
from train.distributed.world import start


def gradients(rank: int) -> dict[str, np.ndarray]:
    own, shared = np.random.default_rng([3, rank]), np.random.default_rng(4)
    return {
        name: np.asarray(value, np.float32)
        for name, value in {
            "random": own.normal(size=(37, 11)),
            "odd": own.normal(size=7),  # no multiple of any number of ranks
            "one": own.normal(size=1),
            "scalar": own.normal(),
            "nearly_parallel": shared.normal(size=50) + 0.01 * own.normal(size=50),
            "equal": shared.normal(size=(3, 4)),
            "orthogonal": np.eye(8)[rank] * (rank + 2),
            "opposite": shared.normal(size=6) * (-1) ** rank,
            "zero_on_some": own.normal(size=5) * (rank % 2),
            "zero": np.zeros(3),
            "tiny": own.normal(size=9) * 1e-30,  # whose squares float32 cannot hold
            "infinite": [np.inf, 1.0, 2.0] if rank == 1 else own.normal(size=3),
        }.items()
    }


def square(rank: int) -> float:
    return 3.0 + 4.0 * rank


def main() -> None:
    out = Path(sys.argv[1])
    launch = read_launch(os.environ)
    runtime = start(config(gpus=launch.size), launch)

    import tensorflow as tf

    from train.step.reduction import reducer

    reduced = reducer(row(reduction="adasum"), runtime.size)

    own = gradients(runtime.rank)
    found, (small,) = tf.function(reduced)(
        [tf.constant(value) for value in own.values()], [tf.constant(square(runtime.rank))]
    )
    saved = {name: value.numpy() for name, value in zip(own, found, strict=True)}
    np.savez(out / f"adasum-{runtime.rank}.npz", small=small.numpy(), **saved)


if __name__ == "__main__":
    main()
