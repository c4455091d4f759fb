"""What a plan says of a sweep besides its table."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.plan.rows import Rate, rate_key
from jobs.plan.text import summary
from jobs.plan.rows import plan_rows
from tests.jobs.plan.test_rows import IMAGES, config
from train.config.run import RunConfig, Target


def said(*runs: RunConfig, images: int = 1437) -> str:
    return "\n".join(summary(plan_rows(runs, {("digits", None): images}, {})))


def of(technique: dict[str, Any], **changes: Any) -> RunConfig:
    return config(technique=technique, **changes)


SCALED = {"name": "scaled", "lr_scaling": "linear"}
CLIMBING = {"lr_scaling": "linear", "warmup_epochs": 2, "base_batch": 256}
ADAPTED = {"regime_adaptation": True, "base_batch": 256}
ADASCALE = {"lr_scaling": "adascale", "base_batch": 32, "optimizer": {"name": "sgd"}}
DECAYING = ADASCALE | {"schedule": {"name": "cosine"}}


@pytest.mark.parametrize(
    ("remark", "cell", "others"),
    [
        ("1 accumulate up to 4 batches", config(accumulation=4), [config()]),
        ("1 let all ranks draw the same images (partition: same; {cell})",
         config(partition="same"), [config(), config(partition="same", gpus=1)]),
        ("1 stop at train 0.75 held 2 times, or when that is out of reach",
         config(target=Target(train_accuracy=0.75)), [config()]),
        ("1 have a warm-up that climbs nowhere, from the base rate to a lower one ({cell})",
         of(CLIMBING), [of(CLIMBING, batch_per_rank=128)]),
        # 240 images a step make 5 steps an epoch, as 256 do
        ("1 have regime_adaptation and a batch below base_batch ({cell}), so they take fewer steps "
         "than their epochs have, down to 25",
         of(ADAPTED), [of(ADAPTED, batch_per_rank=size) for size in (120, 256)]),
        ("1 have AdaScale and a schedule that decays ({cell})",
         of(DECAYING), [of(ADASCALE), of(DECAYING | {"base_batch": 128})]),
    ],
)  # fmt: skip
def test_remarks_on_a_cell(remark: str, cell: RunConfig, others: list[RunConfig]) -> None:
    words = remark.format(cell=cell.cell_id())
    assert f"\n{words}" in said(*others, cell)
    assert words.partition("(")[0][2:] not in said(*others)


def test_a_rule_that_acts_in_no_cell() -> None:
    idle = [of(SCALED, gpus=1), of({"name": "plain"}, gpus=1)]
    assert "\nscaled: all cells have the base batch" in said(*idle)
    assert "base batch" not in said(*idle, of(SCALED))


def test_images_that_fill_no_whole_step() -> None:
    """39 steps of 512 are 19,968 of 20,000 images, four of 4,096 are 16,384: 18 % fewer."""
    small, large = (config(batch_per_rank=256, accumulation=k) for k in (1, 8))
    assert "1 leave out up to 18% of the images" in said(small, large, images=20_000)
    assert "leave out" not in said(small, images=20_000)


SLOW = {"normalisation": "batch_norm", "bn_momentum": 0.99}
GHOSTS = {"normalisation": "ghost_batch_norm", "ghost_batch": 16, "bn_momentum": 0.99}


@pytest.mark.parametrize(
    ("technique", "accumulation", "share"),
    [
        (SLOW, 1, "48%"),  # the courses' trap: 72 steps at Keras' momentum
        (SLOW, 2, "48%"),
        (SLOW | {"bn_momentum": 0.9}, 1, None),
        (SLOW | {"bn_statistics": "reestimated"}, 1, None),
        (GHOSTS, 1, "6%"),
        (GHOSTS | {"bn_momentum_per": "batch"}, 1, "48%"),
    ],
)
def test_moving_averages_that_have_not_moved(
    technique: dict[str, Any], accumulation: int, share: str | None
) -> None:
    """1,536 images: 12 steps of 2 x 64 in each of 6 epochs, or 6 steps of two such batches."""
    text = said(of(technique, epochs=6, accumulation=accumulation), images=1536)
    assert (f"up to {share} of the initial batch-norm" in text) == (share is not None)
    assert ("batch-norm statistics" in text) == (share is not None)


def test_times_and_what_they_are_estimated_from() -> None:
    runs = [config(seed=0), config(seed=1), config(gpus=1), config(model="resnet_mini")]
    rates = {rate_key(runs[0]): Rate(images_per_s=704.0, fixed_s=5.0, eval_s=1.0, cells=2)}
    rows = plan_rows(runs, IMAGES, rates)
    # 2 x (5 + 10 + 5) s on two ranks; 5 + 7040 / 352 + 5 = 30 s on one
    assert summary(rows) == [
        "4 cells: cnn on digits, resnet_mini on digits; batch = images per step over all ranks",
        "time: about 1:10 one cell after another, 1 never run here left out",
        "  2 estimated from 2 earlier cells like it",
        "  1 estimated from 2 earlier cells on gpus=2, scaled in proportion",
    ]
    assert "never run here" in summary(rows[3:])[1]
    text = summary(rows, {runs[0].cell_id()})
    assert "1 have a good record and are skipped" in text
    assert "time: about 0:50 one cell after another, 1 never run here left out" in text
    assert summary(rows, {run.cell_id() for run in runs})[-1] == "nothing to train"
