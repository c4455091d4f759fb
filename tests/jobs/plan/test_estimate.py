"""Estimated seconds of a cell, against records whose times are known."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.plan import rows as module
from jobs.plan.rows import Estimate, Rate, RateKey, estimate, known_rates, rate_key
from tests import builders
from tests.builders import BEGAN, record
from tests.unreadable import unreadable
from train.config.plan import plan_of
from train.config.run import RunConfig, Target
from train.config.technique import Technique
from train.record.run import Attempt, Throughput


def config(**changes: Any) -> RunConfig:
    row = {key: changes.pop(key) for key in ("normalisation", "precision") if key in changes}
    technique = Technique(name="t", base_lr=0.1, base_batch=10, **row)
    return builders.config(**{"batch_per_rank": 10, "epochs": 3} | changes, technique=technique)


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
    write(tmp_path, config())
    rates = known_rates(tmp_path, [config()])
    assert rates == {rate_key(config()): RATE}
    assert estimated(config(seed=9), rates) == (pytest.approx(20), "1 earlier cell like it")
    twice = estimated(config(epochs=6), rates)
    assert twice.seconds == pytest.approx(11 + 600 / 50 + 6), "it does not start twice"


def test_medians_over_the_newest_cells_of_all_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, (rate, wall) in enumerate([(50.0, 20.0), (100.0, 20.0), (300.0, 15.0)]):
        write(tmp_path, config(seed=seed), images_per_s=rate, wall_s=wall)
    write(tmp_path, config(seed=3), wall_s=5.0)
    monkeypatch.setattr(module, "RECORDS_PER_KEY", 3)
    (found,) = known_rates(tmp_path, [config()]).values()
    # fixed: 20 - 3 - 6, 20 - 3 - 3, 15 - 3 - 1; the fourth ended first
    assert found == Rate(100.0, 11.0, 1.0, 3)


RATE = Rate(images_per_s=50.0, fixed_s=11.0, eval_s=1.0, cells=1)


def estimated(run: RunConfig, rates: dict[RateKey, Rate]) -> Estimate:
    """Of a run on 100 images."""
    return estimate(plan_of(run, 100), rates)


@pytest.mark.parametrize(("within_s", "seconds"), [(4, 11 + 4), (400, 20), (None, 20)])
def test_a_target_ends_a_run_within_its_time(within_s: float | None, seconds: float) -> None:
    run = config(target=Target(train_accuracy=0.9, within_s=within_s))
    assert estimated(run, {rate_key(run): RATE}).seconds == pytest.approx(seconds)


def test_the_nearest_rank_count_is_scaled_in_proportion() -> None:
    rates = {rate_key(config(gpus=gpus)): RATE for gpus in (1, 4)}
    assert estimated(config(gpus=8), rates) == (
        pytest.approx(11 + 240 / (50 * 2) + 3),
        "1 earlier cell on gpus=4, scaled in proportion",
    )
    assert "gpus=1" in estimated(config(gpus=2), rates).source  # as near as 4: the smaller one


def test_another_normalisation_is_better_than_another_rank_count() -> None:
    other = rate_key(config(gpus=2, normalisation="batch_norm"))
    source = estimated(config(gpus=2), {other: RATE, rate_key(config()): RATE}).source
    assert source == "1 earlier cell on gpus=2 with normalisation batch_norm"
    other = rate_key(config(normalisation="batch_norm"))
    source = estimated(config(gpus=2), {other: RATE, rate_key(config(gpus=4)): RATE}).source
    assert source == "1 earlier cell on gpus=4, scaled in proportion", "at equal distance"


@pytest.mark.parametrize(
    "other",
    [{"dataset": "mnist"}, {"model": "mlp"}, {"framework": "mirrored"}, {"width": 2.0},
     {"precision": "mixed_bfloat16"}, {"shortcuts": False},
     {"dataset": "folder:a", "image_size": 32}],
)  # fmt: skip
def test_other_work_says_nothing(tmp_path: Path, other: dict[str, Any]) -> None:
    run = config(**{"model": "resnet_mini"} | other)
    write(tmp_path, config(model="resnet_mini"))
    assert known_rates(tmp_path, [run]) == {}
    assert estimated(run, {rate_key(config(model="resnet_mini")): RATE}).seconds is None


@pytest.mark.parametrize(
    "changes",
    [{"status": "failed"}, {"status": "diverged"}, {"images_per_s": None}, {"attempts": 2}],
)
def test_records_that_tell_no_steady_time_are_left_out(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    write(tmp_path, config(), **changes)
    assert known_rates(tmp_path, [config()]) == {}


def test_records_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    whole = write(tmp_path, config()).read_text()
    broken = write(tmp_path, config(seed=1))
    broken.write_text(whole[:-100])
    holed = write(tmp_path, config(seed=2))
    holed.write_text(holed.read_text().replace('"images": 100', '"images": ---'))
    (tmp_path / "s" / "folder" / "record.json").mkdir(parents=True)
    unreadable(tmp_path / "s" / "another" / "record.json")
    (rate,) = known_rates(tmp_path, [config()]).values()
    assert rate.cells == 1
    assert known_rates(tmp_path / "absent", [config()]) == {}


def test_a_rate_that_promises_more_than_the_wall_time_never_makes_negative_time(
    tmp_path: Path,
) -> None:
    write(tmp_path, config(), images_per_s=10.0, wall_s=20.0)
    assert known_rates(tmp_path, [config()])[rate_key(config())].fixed_s == 0.0
