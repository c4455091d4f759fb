"""The plan of each cell: steps, times, and every impossible cell at once."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.plan.rows import Rate, rate_key
from jobs.plan.rows import plan_rows
from train.config.run import RunConfig
from train.config.schedule import Grow
from train.config.technique import Technique
from train.errors import ConfigError

IMAGES = {("digits", None): 1437, ("folder:a", 32): 100, ("folder:a", 64): 40}


def config(**changes: Any) -> RunConfig:
    technique = {"name": "naive", "base_lr": 0.1, "base_batch": 64, **changes.pop("technique", {})}
    fields = {"dataset": "digits", "model": "cnn", "gpus": 2, "batch_per_rank": 64, "epochs": 5}
    return RunConfig(**{"seed": 0, **fields, **changes}, technique=Technique(**technique))


def test_rows_keep_the_order_of_the_configs_and_seeds_share_a_plan() -> None:
    runs = [config(seed=3), config(seed=1), config(gpus=1), config(seed=2)]
    rows = plan_rows(runs, IMAGES, {})
    assert [row.cell_id for row in rows] == [run.cell_id() for run in runs]
    assert rows[0].plan is rows[1].plan is rows[3].plan
    assert [row.plan.total_steps for row in rows] == [55, 55, 110, 55]
    assert rows[0].time == (None, "never run here")


def test_data_sets_are_told_apart_by_image_size() -> None:
    runs = [config(dataset="folder:a", image_size=size, batch_per_rank=10) for size in (32, 64)]
    assert [row.plan.epochs[0].steps for row in plan_rows(runs, IMAGES, {})] == [5, 2]


def test_all_cells_without_a_step_are_named_at_once() -> None:
    good = config()
    bad = [config(batch_per_rank=1000, seed=seed) for seed in (0, 1)]
    bad.append(config(gpus=4, batch_per_rank=512))
    with pytest.raises(ConfigError) as caught:
        plan_rows([bad[0], good, *bad[1:]], IMAGES, {})
    text = str(caught.value)
    assert text.startswith("3 of 4 cells cannot run on their data:")
    assert all(run.cell_id() in text for run in bad)
    assert good.cell_id() not in text
    assert "at most 718" in text  # 1,437 images / 2 ranks
    assert "at most 359" in text  # / 4 ranks


@pytest.mark.parametrize(
    ("run", "images", "epochs"),
    [
        (config(), 55 * 128, 5),
        (
            config(epochs=4, batch_per_rank=16, technique={
                "batch_growth": Grow(milestones=(0.5,), factor=4), "base_batch": 16}),
            88 * 32 + 22 * 128, 4,
        ),
        (
            config(batch_per_rank=128, technique={"regime_adaptation": True, "base_batch": 64}),
            110 * 256, 22,
        ),
    ],
    ids=["whole steps", "batch that grows", "adapted regime"],
)  # fmt: skip
def test_times_count_the_images_really_processed(run: RunConfig, images: int, epochs: int) -> None:
    rates = {rate_key(run): Rate(images_per_s=11.0, fixed_s=4.0, eval_s=1.0, cells=3)}
    (row,) = plan_rows([run], IMAGES, rates)
    assert row.time == (pytest.approx(4 + images / 11 + epochs), "3 earlier cells like it")
