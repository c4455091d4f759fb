"""Every collective of train/distributed/communicator.py once; prints what this rank got."""

from __future__ import annotations

import json
import os

import numpy as np

from tests.builders import config
from train.distributed.launch import read_launch
from train.distributed.world import start
from train.errors import DataError


def raises(error: Exception) -> None:
    raise error


def main() -> None:
    launch = read_launch(os.environ)
    runtime = start(config(gpus=launch.size), launch)

    import tensorflow as tf

    from train.distributed.communicator import UnequalRanks, equal_hash, weights_hash

    rank, ranks = runtime.rank, runtime.ranks
    ranks.barrier()
    shared = tf.Variable([5.0 + rank])
    value = ranks.of_first(f"of rank {rank}", [shared])
    found = {
        "summed": ranks.summed(np.array([rank, 2.0])).tolist(),
        "alone": ranks.of_first(7 - rank),
        "gathered": ranks.allgather(f"rank {rank}"),
        "variable": shared.numpy().tolist(),
        "value": value,
        "equal": len(equal_hash(ranks.allgather(weights_hash([shared])))) == 64,
    }
    found["arrays"] = ranks.arrays_of_first([np.full(2, rank)])[0].tolist()
    found["made"] = ranks.made_by_first(lambda: f"by rank {rank}")
    for raised in (DataError("no file"), KeyError("x")):
        try:
            ranks.made_by_first(lambda error=raised: raises(error))
        except Exception as error:  # noqa: BLE001
            found[type(raised).__name__] = f"{type(error).__name__}: {error}"
    try:
        equal_hash(ranks.allgather(weights_hash([tf.Variable([float(rank)])])))
    except UnequalRanks as error:
        found["unequal"] = str(error).split(":")[0]
    print(json.dumps(found))


main()
