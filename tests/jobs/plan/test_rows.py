"""The plan of each cell: steps, every impossible cell at once, and times against known records."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.plan import estimate as module
from jobs.plan.estimate import (
    Estimate,
    Rate,
    RateKey,
    completed_cells,
    estimate,
    known_rates,
    rate_key,
)
from jobs.plan.rows import plan_rows
from tests import builders
from tests.builders import BEGAN, record
from tests.unreadable import unreadable
from train.config.plan import plan_of
from train.config.run import RunConfig, Target
from train.config.schedule import Grow
from train.config.technique import Technique
from train.errors import ConfigError
from train.record.measurements import Throughput
from train.record.run import Attempt

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
    sides = [config(dataset="folder:a", image_size=side, batch_per_rank=10) for side in (32, 64)]
    assert [row.plan.epochs[0].steps for row in plan_rows(sides, IMAGES, {})] == [5, 2]


def test_all_cells_without_a_step_are_named_at_once() -> None:
    good = config()
    bad = [config(batch_per_rank=1000, seed=seed) for seed in (0, 1)]
    with pytest.raises(ConfigError, match=r"^2 of 3 cells cannot run on their data:") as caught:
        plan_rows([bad[0], good, bad[1]], IMAGES, {})
    assert all(run.cell_id() in str(caught.value) for run in bad)
    assert good.cell_id() not in str(caught.value)


@pytest.mark.parametrize(
    ("run", "images", "epochs"),
    [
        (config(epochs=4, batch_per_rank=16, technique={
            "batch_growth": Grow(milestones=(0.5,), factor=4), "base_batch": 16}),
         88 * 32 + 22 * 128, 4),
        (config(batch_per_rank=128, technique={"regime_adaptation": True}), 110 * 256, 22),
    ],
    ids=["batch that grows", "adapted regime"],
)  # fmt: skip
def test_times_count_the_images_really_processed(run: RunConfig, images: int, epochs: int) -> None:
    rates = {rate_key(run): Rate(images_per_s=11.0, fixed_s=4.0, eval_s=1.0, cells=3)}
    (row,) = plan_rows([run], IMAGES, rates)
    assert row.time == (pytest.approx(4 + images / 11 + epochs), "3 earlier cells like it")


def small(**changes: Any) -> RunConfig:
    return config(**{"gpus": 1, "batch_per_rank": 10, "epochs": 3} | changes)


def write(
    results: Path,
    run: RunConfig,
    *,
    images_per_s: float | None = 50.0,
    wall_s: float = 20.0,
    status: Any = "completed",
    attempts: int = 1,
) -> Path:
    """A record of epochs of 100 images and 1 s of evaluation each."""
    end = BEGAN + timedelta(seconds=wall_s)
    times = {"images": 100, "eval_s": 1.0}
    one = Attempt(number=1, resumed_from_epoch=0, started_at=BEGAN, ended_at=end, status=status)
    made = record(
        run, status=status,
        epochs=tuple(builders.epoch(n + 1, run, **times) for n in range(run.epochs)),
        throughput=Throughput(images_per_s=images_per_s, samples=(), left_out=(1,)),
        attempts=tuple(one.model_copy(update={"number": n + 1}) for n in range(attempts)),
        ended_at=end,
    )  # fmt: skip
    file = results / f"sweep{run.seed}" / run.cell_id() / "record.json"
    file.parent.mkdir(parents=True)
    file.write_text(made.model_dump_json(indent=2))
    return file


def test_the_parts_of_an_earlier_cell_add_up(tmp_path: Path) -> None:
    """The same cell takes the same wall time: 11 s fixed + 300/50 s + 3 x 1 s = 20 s."""
    write(tmp_path, small())
    rates = known_rates(completed_cells(tmp_path, [small()]))
    assert rates == {rate_key(small()): RATE}
    assert estimated(small(seed=9), rates) == (pytest.approx(20), "1 earlier cell like it")
    twice = estimated(small(epochs=6), rates)
    assert twice.seconds == pytest.approx(11 + 600 / 50 + 6), "it does not start twice"


def test_medians_over_the_newest_cells_of_all_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, (rate, wall) in enumerate([(50.0, 20.0), (100.0, 20.0), (300.0, 15.0)]):
        write(tmp_path, small(seed=seed), images_per_s=rate, wall_s=wall)
    write(tmp_path, small(seed=3), wall_s=5.0)
    monkeypatch.setattr(module, "RECORDS_PER_KEY", 3)
    (found,) = known_rates(completed_cells(tmp_path, [small()])).values()
    # fixed: 20 - 3 - 6, 20 - 3 - 3, 15 - 3 - 1; the fourth ended first
    assert found == Rate(100.0, 11.0, 1.0, 3)


RATE = Rate(images_per_s=50.0, fixed_s=11.0, eval_s=1.0, cells=1)


def estimated(run: RunConfig, rates: dict[RateKey, Rate]) -> Estimate:
    """Of a run on 100 images."""
    return estimate(plan_of(run, 100), rates)


@pytest.mark.parametrize(("within_s", "seconds"), [(4, 11 + 4), (400, 20), (None, 20)])
def test_a_target_ends_a_run_within_its_time(within_s: float | None, seconds: float) -> None:
    run = small(target=Target(train_accuracy=0.9, within_s=within_s))
    assert estimated(run, {rate_key(run): RATE}).seconds == pytest.approx(seconds)


def test_the_nearest_rank_count_is_scaled_in_proportion() -> None:
    rates = {rate_key(small(gpus=gpus)): RATE for gpus in (1, 4)}
    assert estimated(small(gpus=8), rates) == (
        pytest.approx(11 + 240 / (50 * 2) + 3),
        "1 earlier cell on gpus=4, scaled in proportion",
    )
    assert "gpus=1" in estimated(small(gpus=2), rates).source  # as near as 4: the smaller one
    batches = {rate_key(small(batch_per_rank=batch)): RATE for batch in (2, 25)}
    assert estimated(small(), batches).source == "1 earlier cell with batch_per_rank=25"


@pytest.mark.parametrize(
    "other",
    [{"dataset": "mnist"}, {"model": "mlp"}, {"framework": "mirrored"}, {"width": 2.0},
     {"technique": {"precision": "mixed_bfloat16"}}, {"shortcuts": False},
     {"technique": {"normalisation": "batch_norm"}},
     {"dataset": "folder:a", "image_size": 32}],
)  # fmt: skip
def test_other_work_says_nothing(tmp_path: Path, other: dict[str, Any]) -> None:
    run = small(**{"model": "resnet_mini"} | other)
    write(tmp_path, small(model="resnet_mini"))
    assert known_rates(completed_cells(tmp_path, [run])) == {}
    assert estimated(run, {rate_key(small(model="resnet_mini")): RATE}).seconds is None


@pytest.mark.parametrize(
    "changes",
    [{"status": "failed"}, {"status": "diverged"}, {"images_per_s": None}, {"attempts": 2}],
)
def test_records_that_tell_no_steady_time_are_left_out(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    write(tmp_path, small(), **changes)
    assert known_rates(completed_cells(tmp_path, [small()])) == {}


def test_a_folder_that_cannot_be_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = write(tmp_path, small(seed=1)).parent.parent
    write(tmp_path, small())
    real = os.scandir

    def scandir(place: Any) -> Any:
        if str(place).startswith(str(bad)):
            raise OSError(116, "Stale file handle", str(place))
        return real(place)

    monkeypatch.setattr(os, "scandir", scandir)
    assert known_rates(completed_cells(tmp_path, [small()])) == {rate_key(small()): RATE}


def test_records_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    whole = write(tmp_path, small()).read_text()
    broken = write(tmp_path, small(seed=1))
    broken.write_text(whole[:-100])
    holed = write(tmp_path, small(seed=2))
    holed.write_text(holed.read_text().replace('"images": 100', '"images": ---'))
    (tmp_path / "s" / "folder" / "record.json").mkdir(parents=True)
    unreadable(tmp_path / "s" / "another" / "record.json")
    (rate,) = known_rates(completed_cells(tmp_path, [small()])).values()
    assert rate.cells == 1
    assert known_rates(completed_cells(tmp_path / "absent", [small()])) == {}


def test_a_rate_that_promises_more_than_the_wall_time_leaves_no_fixed_cost(tmp_path: Path) -> None:
    write(tmp_path, small(), images_per_s=10.0, wall_s=20.0)
    assert known_rates(completed_cells(tmp_path, [small()]))[rate_key(small())].fixed_s == 0.0
