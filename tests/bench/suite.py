"""The suite's step with its input, as ranks that take turns; of this commit or of an older one,
whichever PYTHONPATH leads to.

Usage: suite.py ASKED, the fields of Asked as JSON. It takes turns as worlds.py has it; each turn
answers its images, seconds, the seconds of each call and, in parts, the sums of StepParts. With
`export` it writes network.json, images.npy and labels.npy for plain.py into that folder instead.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from train.config.optimizer import Sgd
from train.config.run import RunConfig
from train.config.technique import Technique
from train.data import registry
from train.distributed.launch import read_launch
from train.distributed.world import start

RATE = 0.001
#: As a run takes them: what a call is to last, and its most steps.
CALL_S, MOST_PER_CALL = 0.25, 64


@dataclass(frozen=True)
class Asked:
    model: str
    dataset: str
    batch: int  # per rank
    store: str  # folder of prepared data
    form: str = "run"  # parts: three graphs; a number: steps of one call; run: as a run's calls
    deterministic: bool = True
    compression: str = "none"
    bucket_mib: int = 0  # of gradients in one message; 0: the suite's own
    export: str = ""


def main() -> None:
    asked = Asked(**json.loads(sys.argv[1]))
    launch = read_launch(os.environ)
    technique = Technique(
        name="t", base_lr=RATE, base_batch=1, optimizer=Sgd(), compression=asked.compression,
        normalisation="none" if asked.model == "cnn" else "batch_norm",
    )  # fmt: skip
    config = RunConfig(
        dataset=asked.dataset, model=asked.model, technique=technique, gpus=launch.size,
        batch_per_rank=asked.batch, epochs=1, seed=0, deterministic=asked.deterministic,
    )  # fmt: skip
    data = load(asked.dataset, Path(asked.store))
    if asked.export:
        export(config, data, Path(asked.export))
        return
    runtime = start(config, launch)
    if asked.bucket_mib:
        from train.step import reduction

        # no size follows from the network's
        reduction.BUCKET_BYTES, reduction.BUCKETS = asked.bucket_mib << 20, sys.maxsize
    take = build_step(config, runtime, data, asked.form)
    per_call = int(asked.form) if asked.form.isdecimal() else 1
    take(per_call)  # makes the graph
    each = seconds_of_step(take, per_call)
    if asked.form == "run":
        per_call = int(min(max(CALL_S / each, 1), MOST_PER_CALL))
        each = seconds_of_step(take, per_call)
    print(json.dumps({"step_s": each}), flush=True)
    steps = int(sys.stdin.readline())
    while sys.stdin.readline():
        together()
        print(json.dumps(turn(take, per_call, steps, asked.batch)), flush=True)


def load(dataset: str, store: Path) -> Any:
    if hasattr(registry, "DatasetFiles"):
        return registry.DatasetFiles(dataset, store, store=store).load()
    return registry.load(dataset, None, store, store)  # an older commit


def together() -> None:
    import horovod.tensorflow as hvd

    hvd.allreduce(np.zeros(1, np.float32))


def seconds_of_step(take: Callable[[int], list[Any]], per_call: int) -> float:
    """The same on all ranks."""
    import horovod.tensorflow as hvd

    begin, taken = time.perf_counter(), 0
    for _ in range(3):
        taken += len(take(per_call))
    return float(hvd.allreduce(np.float64((time.perf_counter() - begin) / taken)))


def turn(take: Callable[[int], list[Any]], per_call: int, steps: int, batch: int) -> dict[str, Any]:
    parts: list[Any] = []
    ends = [time.perf_counter()]
    taken = 0
    while taken < steps:
        results = take(per_call)
        taken += len(results)
        parts += [result.parts for result in results if result.parts]
        ends.append(time.perf_counter())
    names = parts[0]._fields if parts else ()
    sums = {name: sum(getattr(of, name) or 0.0 for of in parts) for name in names}
    calls = np.diff(ends).tolist()
    return {"images": taken * batch, "seconds": ends[-1] - ends[0], "calls": calls, "parts": sums}


def build_step(config: RunConfig, runtime: Any, data: Any, form: str) -> Callable[[int], list[Any]]:
    """Takes up to so many steps in one call; their results."""
    from train.data import batches
    from train.run.build import build_parts

    parts = build_parts(config, data, runtime)
    plan = parts.plan.epochs[0]
    ours = config, data, parts.used
    if hasattr(batches, "Feed"):
        several = parts.step
        of_calls = partial(
            batches.Feed(*ours, runtime.rank, runtime.size).epoch, plan, following=plan
        )
    else:  # an older commit
        several = parts.step.several
        of_calls = partial(batches.process_batches, *ours, plan, runtime.rank, runtime.size, 1)

    def epochs(per_call: int) -> Iterator[Any]:
        whole, rest = divmod(plan.steps, per_call)
        while True:
            yield from of_calls(calls=[per_call] * whole + [rest] * (rest > 0))

    measured: Any = None
    if form == "parts":
        from train.step.measured import MeasuredStep

        measured = MeasuredStep(parts.step)
    blocks: dict[int, Iterator[Any]] = {}
    first = 0

    def take(per_call: int) -> list[Any]:
        nonlocal first
        own = next(blocks.setdefault(per_call, epochs(per_call)))
        number, first = first, first + len(own)
        if measured:
            return [measured(own, RATE, number)]
        return several(own, [RATE] * len(own), number)

    return take


def export(config: RunConfig, data: Any, folder: Path) -> None:
    """The network takes float32 images there, as the script gives them."""
    from train.models.layers import StepSeed
    from train.models.networks import build_model

    model = build_model(config, data.train_x.shape[1:], len(data.classes), StepSeed(0))
    text = model.to_json().replace('"dtype": "uint8"', '"dtype": "float32"')
    (folder / "network.json").write_text(text)
    np.save(folder / "images.npy", data.train_x[:])
    np.save(folder / "labels.npy", data.train_y)


if __name__ == "__main__":
    main()
