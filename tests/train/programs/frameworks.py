"""A cell's first steps by one framework, with two replicas, whatever number of processes has them.

Usage: frameworks.py FRAMEWORK OUT_FOLDER DATA_FOLDER. The network has dropout and batch norm.
Prints {case: {"hash": of the weights on all replicas of this process, "file": ...}}.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from itertools import islice
from pathlib import Path

import numpy as np

from tests import builders
from tests.builders import row
from train.config.optimizer import Adam, Lamb, Larc, Sgd
from train.config.run import RunConfig
from train.data.registry import DatasetFiles
from train.distributed.launch import read_launch
from train.distributed.world import start

#: In two calls, with one step in parts between them.
STEPS, CALL = 12, 6
#: On the way the rate changes, which momentum has to follow.
CASES = {
    "sgd": {"optimizer": Sgd(momentum=0.9), "clip_norm": 1.0},
    "adam": {"optimizer": Adam(), "label_smoothing": 0.1},
    "lamb": {"optimizer": Lamb(weight_decay=0.01)},
    # three numbers of one size in a sum, so that its order shows
    "larc": {"optimizer": Larc(trust=1e-4, weight_decay=0.05, epsilon=0.01)},
}


def config_for(framework: str, case: dict[str, object]) -> RunConfig:
    technique = row(normalisation="batch_norm", **case)
    return builders.config(
        technique=technique, framework=framework, gpus=2, batch_per_rank=16, seed=5
    )


def factors_are_equal(parts) -> bool:
    """Of layer-wise rates, on all replicas of this process; graphs that add up in another order
    show there first."""
    if parts.step.trust is None:
        return True
    copies = parts.step.back_end.local(parts.step.trust.factors)
    return len({copy.numpy().tobytes() for copy in copies}) == 1


def main() -> None:
    framework, out, data_folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    runtime = start(config_for(framework, {}), read_launch(os.environ))

    import horovod.tensorflow as hvd

    from train.data.batches import Feed
    from train.run.build import build_parts
    from train.step.measured import MeasuredStep
    from train.trainer.batch_statistics import reduce_statistics

    data = DatasetFiles("digits", data_folder).load()
    result = {}
    for name, case in CASES.items():
        config = config_for(framework, case)
        parts = build_parts(config, data, runtime)
        plan, measured = parts.plan.epochs[0], MeasuredStep(parts.step)
        feed = Feed(config, data, parts.used, runtime.rank, runtime.size, runtime.replicas)
        batches = feed.epoch(plan, [CALL, 1, CALL - 1, plan.steps - 2 * CALL])
        seen, number = [], 0
        for block in islice(batches, 3):
            rates = [0.003 * (1 if n < CALL else 2) for n in range(number, number + len(block))]
            if len(block) == 1:  # in parts
                results = [measured(block, rates[0], number)]
                told = results[0].parts
                assert told.communication_s > 0 or runtime.size * runtime.replicas == 1
                assert (told.waiting_s is None) == (framework != "horovod" or runtime.size == 1)
            else:
                results = parts.step(block, rates, number)
            number += len(block)
            assert factors_are_equal(parts), f"{name}: replicas' factors in step {number}"
            seen += [(done.small_sq, done.gradient_sq) for done in results]
            done = results[-1]
        assert number == STEPS
        parts.step.back_end.pull()
        reduce_statistics(parts.model, runtime.size)
        parts.step.back_end.push()
        weights = [variable.numpy() for variable in parts.model.variables]
        trained = [variable.numpy() for variable in parts.step.model.trainable_variables]
        every = hashlib.sha256(b"".join(value.tobytes() for value in [*weights, *trained]))
        state = hashlib.sha256(b"".join(value.numpy().tobytes() for value in parts.step.state))
        file = out / f"{framework}-{name}-{runtime.rank}.npz"
        np.savez(file, *weights, np.array(seen, np.float64))
        result[name] = {
            "hash": every.hexdigest(), "state": state.hexdigest(), "file": str(file),
            "rows": block.labels[0].size, "last_loss": done.loss,
        }  # fmt: skip
    print(json.dumps(result), flush=True)
    hvd.shutdown()  # as a rank does: one was seen to print its result and never to end


main()
