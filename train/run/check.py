"""`python -m train check NETWORK`: does a network train here as it should, what does a step cost,
and which techniques fit it? Images and labels are random, and nothing is left behind.

Started by hand it starts its ranks on this machine, as a local sweep does; under horovodrun, mpirun
or srun each process is a rank. Exit codes: 0 all passed, 1 something failed, 2 a wrong request.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from train.config.datasets import ARRAYS_PREFIX
from train.config.optimizer import Sgd
from train.config.run import RunConfig, explain
from train.config.technique import Technique
from train.data.dataset import Dataset, make_dataset
from train.distributed.launch import Launch, Task, read_launch
from train.distributed.watchdog import Watchdog
from train.distributed.world import start
from train.errors import ConfigError, WorldError, read_whole
from train.program.command_line import EXIT_FAILED, EXIT_REQUEST, positive
from train.program.environment import environment_of
from train.record.cell_folder import CHECKPOINT_NAME
from train.run.failure import headline

STEPS = 3  # of each of two epochs
#: Of the norm of a step: what float32 makes of a sum in another order stays far below.
TOLERANCE = 1e-3
#: To prepare the graph of a large network takes minutes on a core that does other work, too.
PATIENCE_S = 3600.0
#: Once a rank ended badly, the others get this long to report an error of their own.
GRACE_S = 30.0
#: What techniques change that not every network has.
PROBES: dict[str, dict[str, Any]] = {
    "ghosts": {"normalisation": "ghost_batch_norm", "ghost_batch": 2},
    "synchronised": {"normalisation": "sync_batch_norm"},
    "muon": {"normalisation": "batch_norm", "optimizer": {"name": "muon"}},
}
Row = tuple[str, str, str]  # verdict (passed, FAILED, or - for a fact), of what, the finding


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train check", description=__doc__)
    parser.add_argument("network", help="FILE.py:FUNCTION or keras.applications.NAME")
    parser.add_argument("--input", default="32x32x3", help="height x width x channels")
    parser.add_argument("--classes", type=positive(int), default=10)
    parser.add_argument("--batch", type=positive(int), default=16, help="images of a rank")
    parser.add_argument("--ranks", type=positive(int), default=2, help="to start here")
    options = parser.parse_args(arguments)
    rank, verdicts = 0, list[str]()
    try:
        launch = read_launch(os.environ)
        rank = launch.rank
        model, file = _network(options.network)
        config = _config(model, launch.size, options.batch, {})
        # of three epochs: the last one of a pass over the images would take a step in parts
        data = _random_images(options, 3 * STEPS * config.global_batch)
        if launch.launcher == "none":
            return _start_ranks(arguments, options.ranks)
        with tempfile.TemporaryDirectory() as folder:
            for verdict, what, text in _findings(config, data, file, launch, Path(folder)):
                verdicts.append(verdict)
                if rank == 0:
                    print(f"{verdict:7} {what:13} {text}")
    except (ConfigError, WorldError) as error:
        if rank == 0:
            print(f"train check: {error}", file=sys.stderr)
        return EXIT_REQUEST
    except Exception as error:  # noqa: BLE001  (whatever ends training is the finding)
        print(f"FAILED  training      rank {rank}: {headline(error)}")
        return EXIT_FAILED
    return EXIT_FAILED if "FAILED" in verdicts else 0


def _network(written: str) -> tuple[str, Path | None]:
    path, colon, function = written.rpartition(":")
    if not colon:
        return written, None
    if (content := read_whole(Path(path))) is None:
        raise ConfigError(f"{path}: no such file; expected FILE.py:FUNCTION")
    return f"{Path(path).name}:{function}@{hashlib.sha256(content).hexdigest()}", Path(path)


def _config(model: str, ranks: int, batch: int, row: dict[str, Any]) -> RunConfig:
    try:
        technique = Technique(**{"name": "check", "base_lr": 0.001, "base_batch": batch, **row})
        return RunConfig(
            # its images are of any size, so that it is that of --input which is checked
            dataset=f"{ARRAYS_PREFIX}random.npz@{'0' * 64}", model=model, technique=technique,
            gpus=ranks, batch_per_rank=batch, epochs=2, steps_per_epoch=STEPS, seed=0,
        )  # fmt: skip
    except ValidationError as error:
        raise ConfigError(explain(error).strip()) from error


def _random_images(options: argparse.Namespace, count: int) -> Dataset:
    sides = options.input.split("x")
    if len(sides) != 3 or not all(side.isdecimal() and int(side) for side in sides):
        raise ConfigError(f"--input: found {options.input}, expected three sizes, as 32x32x3")
    images = np.random.default_rng(0).integers(0, 256, (count, *map(int, sides)), np.uint8)
    labels, classes = np.arange(count) % options.classes, map(str, range(options.classes))
    few = images[: options.batch], labels[: options.batch]
    return make_dataset("random", [*classes], (images, labels), few)


def _start_ranks(arguments: Sequence[str], size: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        base = environment_of("ranks", os.environ) | {
            "HOROSCALE_SIZE": str(size), "HOROSCALE_LOCAL_SIZE": str(size),
            "HOROSCALE_RENDEZVOUS": f"{folder}/meeting", "HOROSCALE_SUPERVISOR": str(os.getpid()),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "TMPDIR": folder,  # a rank that is killed leaves its files there
        }  # fmt: skip
        argv = [sys.executable, "-m", "train", "check", *arguments]
        numbers = [{"HOROSCALE_RANK": str(n), "HOROSCALE_LOCAL_RANK": str(n)} for n in range(size)]
        ranks = [subprocess.Popen(argv, env=base | own) for own in numbers]
        limit = math.inf
        while None in (codes := [rank.poll() for rank in ranks]) and time.monotonic() < limit:
            if any(codes):
                limit = min(limit, time.monotonic() + GRACE_S)
            time.sleep(0.1)
        for rank in ranks:
            rank.kill()
            rank.wait()
    for number, code in enumerate(codes):
        refused = code == codes[0] == EXIT_REQUEST  # by all, and rank 0 printed why
        if code not in (None, 0, EXIT_FAILED) and not refused:
            error = f"rank {number} ended with exit code {code} and left no error"
            print(f"FAILED  training      {error}")
    return EXIT_REQUEST if EXIT_REQUEST in codes else EXIT_FAILED if any(codes) else 0


def _findings(
    config: RunConfig, data: Dataset, file: Path | None, launch: Launch, folder: Path
) -> Iterator[Row]:
    """Collective."""
    whole, resumed = folder / "whole", folder / "resumed"
    for cell in (whole, resumed):
        (cell / "logs").mkdir(parents=True)
    with Watchdog(folder / "beat", PATIENCE_S, launch.supervisor, print) as watchdog:
        runtime = start(config, launch)
        # only now: they load TensorFlow
        import tensorflow as tf  # noqa: PLC0415

        from train.models.layers import numbers_in  # noqa: PLC0415
        from train.models.normalisation import batch_norms  # noqa: PLC0415
        from train.run.build import build_parts  # noqa: PLC0415
        from train.run.session import train  # noqa: PLC0415
        from train.trainer.checkpoint import Origin  # noqa: PLC0415
        from train.trainer.trainer import Trainer  # noqa: PLC0415

        origin = Origin(device="", ranks=config.gpus, nodes=1, commit="", image="")

        def build(of: RunConfig) -> Any:
            tf.keras.backend.reset_uids()  # a layer without a name has the same one each time
            return build_parts(of, data, runtime, folder, file)

        parts, size = build(config), config.gpus
        trained = numbers_in(parts.model.trainable_variables)
        yield "-", "parameters", f"{parts.model.count_params():,}, of which {trained:,} are trained"
        trainer = partial(Trainer, config, runtime, data, watchdog=watchdog, origin=origin)
        first = trainer(parts=parts, task=Task(whole))
        straight = _trained(first, resumed)
        step_s = straight.epochs[-1].train_s / STEPS
        per = f"of {config.batch_per_rank} images on each of {size} ranks"
        there = "this machine" if launch.nodes == 1 else f"{launch.nodes} machines"
        count = len(runtime.cores.own)
        cores = f"{count} core{'s' * (count != 1)} per rank"
        device = runtime.gpus[0] if runtime.gpus else "CPU"
        yield "-", "step", f"{step_s:.2g} s, {per}, measured on {there} with {cores} ({device})"
        peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if runtime.gpus:
            peak_bytes = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        peak = max(first.ranks.allgather(peak_bytes))
        yield "-", "memory", f"{peak / 1e9:.2f} GB, the most of a rank"
        equal = f"equal to the bit after {2 * STEPS} steps"  # or the trainer had raised an error
        alone = "not compared, since there is one: --ranks 2 starts two"
        yield "passed" if size > 1 else "-", "ranks", equal if size > 1 else alone
        again = train(trainer(parts=build(config), task=Task(resumed, resume=True)))
        same = again.resumed_from == 1 and again.weights_sha256 == straight.weights_sha256
        text = "from a checkpoint leads to " + ("the same weights to the bit" if same else "others")
        yield "passed" if same else "FAILED", "resume", text
        if norms := batch_norms(parts.model):
            kept = ", ".join(f"{one:g}" for one in sorted({norm.momentum for norm in norms}))
            yield "-", "momentum", f"{kept}: each batch keeps this share of the moving averages"
            text = "is no large batch: BatchNormalization takes statistics of each batch"
            yield "-", "accumulation", text
        else:
            yield _accumulation(build, config, data, runtime.rank)
        yield from _fitting(build, config, data, parts.model)


def _trained(trainer: Any, folder: Path) -> Any:
    """As a run trains, with its first checkpoint in ``folder``, too; collective."""
    trainer.start()
    for plan in trainer.left():
        trainer.add(trainer.loop.run_epoch(plan))
        if plan.number == 0 and trainer.runtime.rank == 0:
            shutil.copy(trainer.out / CHECKPOINT_NAME, folder)
    return trainer.finish()


def _fitting(
    build: Callable[[RunConfig], Any], config: RunConfig, data: Dataset, model: Any
) -> Iterator[Row]:
    """What a cell may ask for that not every network allows."""
    from train.models.layers import user_network  # noqa: PLC0415
    from train.trainer.checkpoint import weights_file  # noqa: PLC0415
    from train.trainer.sharpness import check_sharpness  # noqa: PLC0415

    def built(row: dict[str, Any]) -> None:
        build(_config(config.model, config.gpus, config.batch_per_rank, row))

    tries: dict[str, Callable[[], object]] = {
        **{name: partial(built, row) for name, row in PROBES.items()},
        "keep_weights": lambda: weights_file(user_network(model)),
        "sharpness": lambda: check_sharpness(model, data),
    }
    for name, attempt in tries.items():
        try:
            attempt()
            yield "-", name, "fits"
        except ConfigError as error:
            yield "-", name, f"does not fit: {error}"


def _accumulation(
    build: Callable[[RunConfig], Any], config: RunConfig, data: Dataset, rank: int
) -> Row:
    """Collective: a step of SGD without dropout, by two batches and by both as one."""
    from train.data.batches import Batches  # noqa: PLC0415
    from train.models.layers import random_layers  # noqa: PLC0415

    sgd = config.technique.model_copy(update={"optimizer": Sgd()})
    parts = build(config.model_copy(update={"technique": sgd}))
    for layer in random_layers(parts.model):
        if hasattr(layer, "rate"):
            layer.rate = 0.0
    before, steps = [variable.numpy() for variable in parts.step.state], []
    both = 2 * config.batch_per_rank
    for images, number in ((both, 0), (both // 2, 0), (both, 1)):
        for variable, value in zip(parts.step.state, before, strict=True):
            variable.assign(value)
        own = slice(both * rank, both * (rank + 1))
        cut = (1, both // images, images)  # one step of so many batches
        batches = Batches(
            data.train_x[own].reshape(*cut, *data.train_x.shape[1:]), data.train_y[own].reshape(cut)
        )
        parts.step(batches, [1.0], number)
        moved = (v.numpy() - value for v, value in zip(parts.step.state, before, strict=True))
        steps.append(np.concatenate([np.ravel(part) for part in moved]))
    if not np.array_equal(steps[2], steps[0], equal_nan=True):
        text = "not compared: random layers are active, and draw for each batch"
        return "-", "accumulation", text
    share = np.linalg.norm(steps[1] - steps[0]) / np.linalg.norm(steps[0])
    if share < TOLERANCE:
        return "passed", "accumulation", f"equals the large batch to {share:.0e} of a step"
    text = f"differs from the large batch by {share:.0e} of a step: a layer mixes the images"
    return "FAILED", "accumulation", text
