"""How long Horovod's all-reduce of small and large tensors takes between two idle ranks.

Usage: python -m tests.bench.latency; it starts the ranks, which run this file with --rank.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from jobs.cell.launch import core_groups
from tests.pretend_hosts import ended
from tests.sweeps import ranks_here

SIZES = (4, 4_096, 500_000, 6_400_000)  # bytes


def measure() -> dict[int, list[float]]:
    """Milliseconds: 5th, 50th and 95th percentile of each size."""
    from train.config.run import RunConfig
    from train.config.technique import Technique
    from train.distributed.launch import read_launch
    from train.distributed.world import start

    launch = read_launch(os.environ)
    technique = Technique(name="t", base_lr=0.001, base_batch=1)
    start(
        RunConfig(
            dataset="synthetic", model="cnn", technique=technique, gpus=launch.size,
            batch_per_rank=1, epochs=1, seed=0,
        ),
        launch,
    )  # fmt: skip
    import horovod.tensorflow as hvd
    import tensorflow as tf

    found = {}
    for size in SIZES:
        tensor, took = tf.zeros([size // 4]), []
        for _ in range(101 if size < 1_000_000 else 21):
            begin = time.perf_counter()
            hvd.allreduce(tensor, op=hvd.Sum, name=f"of_{size}").numpy()
            took.append(1e3 * (time.perf_counter() - begin))
        found[size] = [float(np.percentile(took[1:], share)) for share in (5, 50, 95)]
    return found


def main() -> int:
    if sys.argv[1:] == ["--rank"]:
        print(json.dumps(measure()))
        return 0
    cores = core_groups(2, 1, sorted(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        ranks = ended(ranks_here(Path(folder), [__file__, "--rank"], cores), 600)
    if any(code for code, _, _ in ranks):
        raise RuntimeError(f"the ranks failed: {[errors[-3000:] for _, _, errors in ranks]}")
    for size, (low, median, high) in json.loads(ranks[0][1].splitlines()[-1]).items():
        print(f"{int(size):9,} bytes {median:7.2f} ms  ({low:.2f} to {high:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
