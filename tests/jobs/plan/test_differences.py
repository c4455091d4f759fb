"""What sets cells apart beside their ids."""

from __future__ import annotations

from typing import Any

from jobs.plan.differences import apart, in_words
from tests.builders import config
from train.config.optimizer import Lars, Sgd
from train.config.run import RunConfig, Target
from train.config.schedule import Step
from train.config.technique import Technique


def row(name: str = "t", **changes: Any) -> Technique:
    return Technique(name=name, **{"base_lr": 1, "base_batch": 64, **changes})


def words(*configs: RunConfig) -> list[str]:
    return [in_words(settings) for settings in apart(configs).values()]


def test_equal_settings_and_what_ids_say_are_left_out() -> None:
    told = words(
        config(gpus=1), config(gpus=2), config(seed=3), config(technique=row("a")),
        config(technique=row("b", base_lr=0.5, normalisation="batch_norm")),
        config(technique=row("b", base_lr=0.5, base_batch=1, normalisation="batch_norm")),
    )  # fmt: skip
    assert set(told) == {""}


def test_the_batch_is_what_scaling_fixes() -> None:
    weak = [config(gpus=gpus, batch_per_rank=size) for gpus in (1, 2) for size in (16, 32)]
    assert words(*weak) == ["batch 16", "batch 32"] * 2
    strong = [
        config(gpus=gpus, batch_per_rank=size // gpus, scaling="strong", epochs=size)
        for gpus in (1, 2) for size in (16, 32)
    ]  # fmt: skip
    assert words(*strong) == ["batch 16, epochs 16", "batch 32, epochs 32"] * 2


def test_settings_of_the_cell() -> None:
    assert words(config(), config(framework="mirrored", accumulation=1)) == [
        "framework horovod", "framework mirrored"
    ]  # fmt: skip
    goal = Target(train_accuracy=0.75)
    assert words(config(), config(target=goal, accumulation=2)) == [
        "accumulation 1, target -", "accumulation 2, target train 0.75 held 2 times"
    ]  # fmt: skip


def test_techniques_differ_within_one_name_only() -> None:
    told = words(
        config(technique=row("a", zero_gamma=True, normalisation="batch_norm")),
        config(technique=row("a", normalisation="batch_norm")),
        config(technique=row("b", normalisation="none")),
    )
    assert told == ["zero_gamma yes", "zero_gamma no", "zero_gamma no"]


def test_numbers_of_a_kind_and_kinds_that_differ() -> None:
    same = [row(schedule=Step(milestones=(0.5,))), row(schedule=Step(milestones=(0.3, 0.6)))]
    assert words(*(config(technique=one) for one in same)) == [
        "schedule.milestones 0.5", "schedule.milestones 0.3/0.6"
    ]  # fmt: skip
    others = [row(optimizer=Sgd(momentum=0.5)), row(optimizer=Lars())]
    assert words(*(config(technique=one) for one in others)) == ["optimizer sgd", "optimizer lars"]
    mixed = [row(optimizer=Sgd(momentum=0.5)), row(optimizer=Sgd(momentum=0.9)), *others[1:]]
    assert words(*(config(technique=one) for one in mixed)) == [
        "optimizer sgd, optimizer.momentum 0.5", "optimizer sgd, optimizer.momentum 0.9",
        "optimizer lars, optimizer.momentum 0.9",
    ]  # fmt: skip
