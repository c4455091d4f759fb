"""A whole cell in this process and on two ranks: what a run does, measures and leaves."""

from __future__ import annotations

import pydoc
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import config, row
from train.config.optimizer import Adam, NovoGradTfa, Sgd
from train.config.run import RunConfig, Target
from train.config.schedule import Grow
from train.data.dataset import Dataset, make_dataset
from train.distributed.awake import Awake
from train.distributed.launch import Task
from train.distributed.watchdog import WAITING, Watchdog
from train.distributed.world import Runtime
from train.errors import ConfigError, DataError
from train.record.builder import throughput
from train.record.cell_folder import CHECKPOINT_NAME, read_epochs
from train.record.run import read_record

STEPS = 5


def brightness(images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy grey squares; the class is how bright they are."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(images) % 4)
    noise = rng.integers(0, 20, (images, 8, 8, 1))
    return (60 * labels[:, None, None, None] + noise).astype(np.uint8), labels


def squares() -> Dataset:
    return make_dataset("squares", list("abcd"), brightness(83, 0), brightness(30, 1))


def cell(
    of: Any, out: Path, beat: Any = lambda *_: None, attempt: int = 1, awake: Any = None,
    **origin: Any,
) -> Any:  # fmt: skip
    """A world of one, in this process."""
    from train.distributed.communicator import ALONE

    runtime = Runtime(ALONE, "none", ())
    return trainer(of, runtime, out, attempt, beat, origin, awake)


def trainer(
    of: Any, runtime: Any, out: Path, attempt: int, beat: Any, origin: Any = (), awake: Any = None
) -> Any:
    """Of the squares, on this rank of a world that has met; a later start goes on."""
    from train.run.build import build_parts
    from train.run.session import train
    from train.trainer.checkpoint import Origin
    from train.trainer.trainer import Trainer

    data = squares()
    parts = build_parts(of, data, runtime)
    watchdog = Watchdog(None, 300, None, print)
    watchdog.beat, watchdog.awake = beat, awake or Awake()
    usual = {"device": "A", "ranks": 1, "nodes": 1, "commit": "c1", "image": ""}
    origin = Origin(**usual | dict(origin))
    task = Task(out, attempt=attempt, resume=attempt > 1)
    run = Trainer(of, runtime, data, parts, task, watchdog, origin, checkpoint_s=0)
    run.train = partial(train, run)
    return run


def of(
    optimizer: Any, *, epochs: int = 4, rate: float = 0.01, batch: int = 16,
    steps_per_epoch: int | None = None, **more: Any,
) -> Any:  # fmt: skip
    technique = row(
        base_lr=rate, base_batch=4, lr_scaling="sqrt", warmup_epochs=0.75 * epochs,
        normalisation="batch_norm", optimizer=optimizer, **more,
    )  # fmt: skip
    return config(
        technique=technique, epochs=epochs, batch_per_rank=batch, steps_per_epoch=steps_per_epoch
    )


def curve(epochs: Any) -> list[tuple[Any, ...]]:
    return [
        (e.train_loss, e.train_accuracy, e.validation_loss, e.validation_accuracy, e.lr_first,
         e.lr_last, e.steps, e.images)
        for e in epochs
    ]  # fmt: skip


def steps_of(run: Any) -> list[Any]:
    """Fills up with the results of the steps that the run takes in its epochs."""
    steps: list[Any] = []
    counted = run.loop._counted

    def noted(*taken: Any) -> Any:
        steps.extend(results := counted(*taken))
        return results

    run.loop._counted = noted
    return steps


class Killed(Exception):
    """Stands for a kill at this very moment."""


def killed_at(moment: str) -> Any:
    def beat(phase: str, *_: float) -> None:
        if phase == moment:
            raise Killed

    return beat


@pytest.mark.tf
def test_all_graphs_are_made_before_the_first_epoch_is_timed(tmp_path: Path) -> None:
    """Re-estimated statistics had one of their own in each epoch."""
    run = cell(of(Sgd(), epochs=2, bn_statistics="reestimated"), tmp_path)
    layer, watch, traced, before = run.model.get_layer("hidden"), run.loop._watch, [], []
    layer.activation = lambda x: traced.append(layer) or x
    run.loop._watch = lambda plan: before.append(len(traced)) or watch(plan)
    run.train()
    assert before == 2 * [len(traced)] and traced


@pytest.mark.tf
def test_ranks_of_different_images_do_not_train(tmp_path: Path) -> None:
    """Copies on the nodes' own disks, of which one is an older one."""
    from train.distributed.communicator import Ranks

    class TwoNodes(Ranks):
        def allgather(self, mine: Any) -> list[Any]:
            return [("n1", "f" * 64, *mine[2:]), mine]

    run = cell(of(Sgd()), tmp_path)
    run.runtime = replace(run.runtime, ranks=TwoNodes(0, 1))
    with pytest.raises(DataError, match=r"squares: the images on .+ are not those on n1"):
        run.train()


@pytest.mark.tf
def test_shorter_epochs_show_the_same_run_more_often(tmp_path: Path) -> None:
    """One step an epoch, where a pass over the images has five."""
    whole, short = (
        cell(asked, tmp_path).train()
        for asked in (of(Adam()), of(Adam(), epochs=20, steps_per_epoch=1))
    )
    assert [e.steps for e in short.epochs] == [1] * 20
    assert short.weights_sha256 == whole.weights_sha256
    ends = short.epochs[STEPS - 1 :: STEPS]
    assert [e.validation_loss for e in ends] == [e.validation_loss for e in whole.epochs]
    assert len({e.validation_loss for e in short.epochs}) > 4


@pytest.mark.tf
def test_a_run_resumed_on_other_devices_or_code_or_on_shared_cores_says_so(tmp_path: Path) -> None:
    """Seen: one throughput had both, and no remark said so. Another host is no difference."""
    given, other = of(Adam(), epochs=5), {"device": "B", "nodes": 2, "commit": "c2"}
    for attempt, origin in ((1, {}), (2, other)):
        beat = killed_at(f"training step 1 of 5, epoch {attempt + 1}")
        run = cell(given, tmp_path, beat, attempt, **origin)
        run.runtime.cores.others = attempt == 1
        with pytest.raises(Killed):
            run.train()
    last = cell(given, tmp_path, attempt=3, **other)
    found = last.train()
    assert last.loop.oversubscribed and not last.runtime.cores.others
    (alarm,) = found.alarms
    words = "device B (before: A), nodes 2 (before: 1), commit c2 (before: c1)"
    assert alarm.startswith(f"resumed after epoch 1 with {words}")
    assert found.origin_from == 1 and len(found.epochs) == 5
    steady = throughput(found.epochs, found.origin_from)
    assert [sample.epoch for sample in steady.samples] == [4, 5]
    assert steady.left_out == (1, 2, 3)


@pytest.mark.tf
def test_ranks_that_part_in_a_deterministic_run_end_it_in_that_epoch(tmp_path: Path) -> None:
    from train.distributed.communicator import Ranks, UnequalRanks

    class Parted(Ranks):
        def exchanged(self, sums: Any, row: Any) -> Any:
            return sums, np.stack([row, [*row[:-1], row[-1] + 1]])

    run = cell(of(Sgd()), tmp_path)
    run.loop.ranks = Parted(0, 1)
    with pytest.raises(UnequalRanks, match=r"weights differ after training: .*rank 1 "):
        run.train()
    assert not read_epochs(tmp_path) and not (tmp_path / CHECKPOINT_NAME).exists()


@pytest.mark.tf
@pytest.mark.parametrize(
    ("images", "words"),
    [(None, "training needs .* Use a smaller batch"), (8, "sharpness needs .* Leave out sharp")],
)
def test_too_little_memory_is_named_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: int | None, words: str
) -> None:
    """Before, the sharpness of ResNet-50 took 24 GB when all the training was done."""
    monkeypatch.setattr("train.trainer.checks.free_memory", lambda: 1000)
    run = cell(of(Adam()).model_copy(update={"sharpness_images": images}), tmp_path)
    with pytest.raises(ConfigError, match=words):
        run.train()
    assert not read_epochs(tmp_path)


def test_what_takes_long_on_a_cpu_shows_signs_of_life_between_its_parts(tmp_path: Path) -> None:
    """A step of many batches, and statistics taken anew from many: no stall."""
    again = {"normalisation": "batch_norm", "bn_statistics": "reestimated"}
    technique = row(base_lr=0.01, base_batch=16, **again)
    given = config(technique=technique, epochs=1, batch_per_rank=16, accumulation=2)
    said: list[str] = []
    cell(given, tmp_path, lambda phase, *_: said.append(phase)).train()
    settling = "settling the batch-norm statistics after epoch 1"
    parts = ("", *(f", batch {number}" for number in range(1, 6)), WAITING)
    phases = [
        *(f"training step {number} of 2, epoch 1{part}" for number in (1, 2)
          for part in ("", ", batch 2 of 2")),
        *(settling + part for part in parts), "validating, part 1 of 1",
    ]  # fmt: skip
    at = said.index(phases[0])
    assert said[at : at + len(phases)] == phases
    assert said[-2:] == ["comparing the ranks' weights", "summing up the steps"]


@pytest.mark.tf
@pytest.mark.parametrize(
    "place",
    [
        "train.step.step.backward",  # runs while a graph is made
        "train.step.measured.MeasuredStep._meet",  # runs in a step that is taken in parts
        "train.trainer.epoch.weights_hash",
    ],
)
def test_what_a_user_s_training_would_not_do_is_in_no_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Each of them takes three seconds longer here; in the last epoch accumulation begins."""
    function: Any = pydoc.locate(place)

    def slowly(*arguments: Any, **more: Any) -> Any:
        time.sleep(3)
        return function(*arguments, **more)

    monkeypatch.setattr(place, slowly)
    given = of(Adam(), epochs=5, batch_growth=Grow(milestones=(0.8,), factor=2, largest=32))
    epochs = cell(given, tmp_path).train().epochs
    assert {epoch.accumulation for epoch in epochs} == {1, 2}
    assert max(max(epoch.train_s, epoch.eval_s) for epoch in epochs) < 3


@pytest.mark.tf
def test_what_a_run_was_suspended_for_is_no_training_time(tmp_path: Path) -> None:
    """On a clock that goes on by 0.1 s at each sign of life, and by an hour within two of them."""
    moment, leaps = [0.0], ["training step 3 of 5, epoch 2", "validating", "writing"]
    target = Target(train_accuracy=0.01, held_for=3, within_s=100)
    given = of(Adam(), epochs=3).model_copy(update={"target": target})
    awake = Awake(lambda: moment[0], lambda: 0.0)

    def beat(phase: str, *_: float) -> None:
        if leaps and phase.startswith(leaps[0]):
            del leaps[0]
            moment[0] += 3600
        moment[0] += 0.1
        awake.look()

    run = cell(given, tmp_path, beat, awake=awake)
    found = run.train()
    epochs = found.epochs
    assert found.target.met and found.target.seconds < 10, "two hours are not on its clock"
    # while the checkpoint of the second was written, the third names it
    assert [round(epoch.suspended_s) for epoch in epochs] == [0, 7200, 3600]
    for epoch in epochs:
        assert 0.1 < epoch.train_s < 1.5 and epoch.eval_s < 3
    assert run.loop.samples.epochs == 1, "step times are of epochs without a suspension"


@pytest.mark.tf
def test_a_checkpoint_that_is_refused_is_an_alarm(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / CHECKPOINT_NAME).write_bytes(b"half a checkp")
    found = cell(of(Adam(), epochs=1), tmp_path, attempt=2).train()
    assert found.resumed_from == 0 and len(found.epochs) == 1
    (alarm,) = found.alarms
    assert alarm.startswith("training began again at epoch 1: checkpoint.npz is damaged")
    monkeypatch.setattr("train.trainer.trainer.network_digest", lambda _: "of another network")
    assert cell(of(Adam(), epochs=1), tmp_path, attempt=3).train().alarms == found.alarms


@pytest.mark.tf
def test_an_alarm_of_equal_images_is_raised_once_and_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after two epochs and then given other images, the record still has the alarm."""
    from train.data.batches import Batches, Feed

    # a batch that grows: alarms of later epochs differ in their numbers
    grow = Grow(milestones=(0.3,), factor=2, largest=64)
    technique = row(base_lr=0.01, base_batch=16, optimizer=Sgd(), batch_growth=grow)
    cut = {"batch_per_rank": 8, "accumulation": 2}
    given = config(model="linear", technique=technique, epochs=4, **cut)

    epoch = Feed.epoch

    def same(*given: Any) -> Any:
        for call in epoch(*given):
            every = np.zeros(call.images.shape[1], int)
            yield Batches(call.images[:, every], call.labels[:, every])

    with monkeypatch.context() as wrong:
        wrong.setattr(Feed, "epoch", same)
        beat = killed_at("settling the batch-norm statistics after epoch 3")
        with pytest.raises(Killed):
            cell(given, tmp_path, beat).train()
    found = cell(given, tmp_path, attempt=2).train()
    (alarm,) = found.alarms
    assert found.resumed_from == 2
    assert alarm.startswith("epoch 1: in 5 of 5 steps the 2 gradients") and "the same" in alarm


@pytest.mark.tf
def test_an_epoch_tells_what_was_done(tmp_path: Path) -> None:
    given = of(Adam(), epochs=3).model_copy(update={"sharpness_images": 32})
    found = cell(given, tmp_path).train()
    assert found.sharpness.images == 32 and found.sharpness.scaled > 0
    for epoch in found.epochs:
        assert epoch.steps == 83 // 16 and epoch.images == 5 * 16
        assert epoch.validation_images == 30
        assert epoch.train_s > 0 and epoch.eval_s > 0
    rates = [(e.lr_first, e.lr_last) for e in found.epochs]
    peak, warmup = 0.01 * 2, 11  # sqrt(16 / 4); 2.25 epochs of 5 steps
    climbed = [0.01 + 0.01 * min(1, (n + 1) / warmup) for n in range(15)]
    assert rates == [pytest.approx((climbed[5 * e], climbed[5 * e + 4])) for e in range(3)]
    assert rates[-1] == (peak, peak)
    (steps,) = found.steps
    assert steps.step_s.n == 2 * (STEPS - 1) and steps.sampled == steps.compute_s.n == 2
    assert steps.communication_s.mean == 0
    assert [epoch.sampled_steps for epoch in found.epochs] == [1] * 3
    assert found.epochs[-1].train_accuracy > 0.5, "it learns"


@pytest.mark.tf
def test_weights_that_explode_in_the_very_last_step_are_a_diverged_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All gradients were finite and the training loss is low: only validation tells."""
    given = of(Adam(), epochs=2)
    run = cell(given, tmp_path)
    call = type(run.step).__call__

    def last_one_overflows(step: Any, steps: Any, rates: Any, first: int) -> Any:
        results = call(step, steps, rates, first)
        if first + len(results) == 2 * STEPS:
            run.model.trainable_variables[-1].assign(np.inf * np.ones(4))
        return results

    monkeypatch.setattr(type(run.step), "__call__", last_one_overflows)
    found = run.train()
    last = found.epochs[-1]
    assert len(found.epochs) == 2 and last.train_accuracy > 0.4 and last.validation_loss is None
    assert found.error is not None and "validation loss is not finite" in found.error.what


def in_half_precision(epochs: int, optimizer: Any = None) -> RunConfig:
    optimizer = optimizer or Sgd(momentum=0.9)
    technique = row(base_lr=0.05, base_batch=16, precision="mixed_float16", optimizer=optimizer)
    return config(technique=technique, epochs=epochs, batch_per_rank=16)


@pytest.mark.tf
@pytest.mark.parametrize("optimizer", [Sgd(momentum=0.9), NovoGradTfa()], ids=lambda o: o.name)
def test_steps_that_overflow_do_not_advance_the_run_s_clock(tmp_path: Path, optimizer: Any) -> None:
    """The loss scale starts far too high; until it fits, nothing counts as done. The optimizer,
    which may treat its first step in a way of its own, has not been called by then."""
    run = cell(in_half_precision(4, optimizer), tmp_path)
    steps = steps_of(run)
    run.step.loss_scale.scale.assign(2.0**32)
    found = run.train()
    skipped = sum(epoch.skipped_steps for epoch in found.epochs)
    assert found.error is None and 3 <= skipped < 20
    assert float(run.step.loss_scale.scale) == 2.0 ** (32 - skipped)
    assert run.loop.position == 4 * STEPS - skipped == int(run.step.optimizer.iterations)
    assert sum(step.skipped for step in steps) == skipped
    assert run.loop.skipped_in_a_row == 0 and run.step.last_rate == found.epochs[-1].lr_last


@pytest.mark.tf
def test_overflows_are_counted_over_the_ends_of_epochs_and_starts(tmp_path: Path) -> None:
    """More than 20 steps in a row, which no epoch of 5 steps has."""
    run = cell(in_half_precision(6), tmp_path, killed_at("training step 3 of 5, epoch 3"))
    run.step.loss_scale.scale.assign(2.0**100)
    with pytest.raises(Killed):
        run.train()
    again = cell(in_half_precision(6), tmp_path, attempt=2)
    found = again.train()
    assert found.resumed_from == 2 and again.step.last_rate is None
    assert len(found.epochs) == 5 and found.epochs[-1].steps == 1
    assert "more than 20 steps in a row, up to step 1 of epoch 5" in found.error.what


@pytest.mark.ranks2
@pytest.mark.slow
def test_two_ranks_with_batch_norm_that_explode_are_a_diverged_result(
    start_ranks: Any, tmp_path: Path, data_root: Path
) -> None:
    """The ranks stop in mid-epoch with batch-norm statistics of their own, which is no fault."""
    exploding = {"base_lr": 1e18, "base_batch": 64, "optimizer": Sgd(momentum=0.9)}
    technique = row(normalisation="batch_norm", **exploding)
    given = config(gpus=2, technique=technique, model="resnet_mini")
    (tmp_path / "config.json").write_text(given.model_dump_json())
    file = str(tmp_path / "config.json")
    start_ranks(["-m", "train", file, "--data", str(data_root), "--stall-s", "300"], 2)
    found = read_record(tmp_path / "record.json")
    assert found.status == "diverged", found.error
    assert "not finite" in found.error.what
    last = found.epochs[-1]
    assert last.images == last.steps * given.global_batch
    assert last.steps < 1437 // given.global_batch
    assert found.weights_sha256 and not found.world.oversubscribed
