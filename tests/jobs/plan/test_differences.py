"""What sets cells apart besides their ids."""

from __future__ import annotations

from typing import Any

from jobs.plan.differences import apart, in_words
from tests.builders import config
from train.config.optimizer import Lars, Sgd
from train.config.run import RunConfig, Target
from train.config.schedule import StepDecay
from train.config.technique import Technique


def of(name: str = "t", **settings: Any) -> RunConfig:
    return config(technique=Technique(name=name, **{"base_lr": 1, "base_batch": 64, **settings}))


def words(*configs: RunConfig) -> list[str]:
    return [in_words(settings) for settings in apart(configs).values()]


def test_equal_settings_and_what_ids_say_are_left_out() -> None:
    same = {"base_lr": 0.5, "normalisation": "batch_norm"}
    cells = [config(gpus=1), config(gpus=2), config(seed=3), of("a"), of("b", **same)]
    assert set(words(*cells, of("b", **same, base_batch=1))) == {""}


def test_the_batch_is_what_scaling_fixes() -> None:
    weak = [config(gpus=gpus, batch_per_rank=size) for gpus in (1, 2) for size in (16, 32)]
    assert words(*weak) == ["batch 16", "batch 32"] * 2
    strong = [
        config(gpus=gpus, batch_per_rank=size // gpus, scaling="strong", epochs=size)
        for gpus in (1, 2)
        for size in (16, 32)
    ]
    assert words(*strong) == ["batch 16, epochs 16", "batch 32, epochs 32"] * 2


def test_settings_of_the_cell() -> None:
    goal = Target(train_accuracy=0.75)
    assert words(config(), config(framework="mirrored", epochs=3, target=goal)) == [
        "framework horovod, epochs 2, target -",
        "framework mirrored, epochs 3, target training accuracy 0.75 (2 evaluations in a row)",
    ]


def test_techniques_differ_within_one_name_only() -> None:
    plain = {"normalisation": "batch_norm"}
    cells = of("a", zero_gamma=True, **plain), of("a", **plain), of("b", normalisation="none")
    assert words(*cells) == ["zero_gamma yes", "zero_gamma no", "zero_gamma no"]


def test_numbers_are_compared_within_their_kind() -> None:
    steps = [of(schedule=StepDecay(milestones=places)) for places in ((0.5,), (0.3, 0.6))]
    assert words(*steps) == ["schedule.milestones 0.5", "schedule.milestones 0.3/0.6"]
    slow, fast, lars = (of(optimizer=o) for o in (Sgd(momentum=0.5), Sgd(momentum=0.9), Lars()))
    assert words(slow, lars) == ["optimizer sgd", "optimizer lars"]
    assert words(slow, fast, lars) == [
        "optimizer sgd, optimizer.momentum 0.5",
        "optimizer sgd, optimizer.momentum 0.9",
        "optimizer lars, optimizer.momentum 0.9",
    ]
