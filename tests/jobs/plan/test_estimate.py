"""Estimated seconds of a cell, against records whose times are known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.plan.estimate import Estimate, Rate, RateKey, estimate, known_rates, rate_key
from tests.builders import record
from tests.unreadable import unreadable
from train.config.run import RunConfig, Target
from train.config.technique import Technique
from train.record.run import Attempt, EpochRecord, Throughput, null_paths

START = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)


def config(**changes: Any) -> RunConfig:
    row = {key: changes.pop(key) for key in ("normalisation", "precision") if key in changes}
    technique = Technique(name="t", base_lr=0.1, base_batch=10, **row)
    fields = {"dataset": "digits", "model": "cnn", "gpus": 1, "batch_per_rank": 10, "epochs": 3}
    return RunConfig(**{"seed": 0, **fields, **changes}, technique=technique)


def epoch(number: int, train_s: float, eval_s: float) -> EpochRecord:
    return EpochRecord(
        epoch=number, attempt=1, global_batch=10, steps=10, images=100, train_s=train_s,
        eval_s=eval_s, lr_first=0.1, lr_last=0.1, train_loss=1.0, train_accuracy=0.5,
        validation_loss=1.0, validation_accuracy=0.5, validation_images=10,
    )  # fmt: skip


def write(
    results: Path,
    run: RunConfig,
    *,
    images_per_s: float | None = 50.0,
    wall_s: float = 20.0,
    status: Any = "completed",
    attempts: int = 1,
    sweep: str = "s",
) -> None:
    """A record of epochs of 100 images each: the first takes 5 s, others 2 s, evaluation 1 s."""
    end = START + timedelta(seconds=wall_s)
    made = record(
        run, status=status,
        epochs=tuple(epoch(i, 5.0 if i == 1 else 2.0, 1.0) for i in range(1, run.epochs + 1)),
        throughput=Throughput(images_per_s=images_per_s, samples=(), left_out=(1,)),
        attempts=tuple(
            Attempt(
                number=i, resumed_from_epoch=0, started_at=START, ended_at=end, status=status
            )
            for i in range(1, attempts + 1)
        ),
        started_at=START, ended_at=end,
    )  # fmt: skip
    missing = dict.fromkeys(null_paths(made, whole=True), "a test has none")
    folder = results / sweep / run.cell_id()
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(
        made.model_copy(update={"missing": missing}).model_dump_json()
    )


def test_the_parts_of_an_earlier_cell_add_up(tmp_path: Path) -> None:
    """The same cell again takes the same wall time: 11 s fixed + 300/50 s + 3 x 1 s = 20 s."""
    write(tmp_path, config())
    rates = known_rates(tmp_path)
    assert rates == {
        RateKey("digits", None, "cnn", 1.0, True, "horovod", "float32", 1, "none"): Rate(
            50.0, 11.0, 1.0, 1
        )
    }
    found = estimate(config(seed=9), 300, 3, rates)
    assert found.seconds == pytest.approx(20.0)
    assert found.source == "1 earlier cell like it"


def test_a_target_ends_a_run_within_its_time(tmp_path: Path) -> None:
    write(tmp_path, config())
    target = Target(train_accuracy=0.9, within_s=4)
    rates = known_rates(tmp_path)
    assert estimate(config(target=target), 300, 3, rates).seconds == pytest.approx(11 + 4)
    late = Target(train_accuracy=0.9, within_s=400)
    assert estimate(config(target=late), 300, 3, rates).seconds == pytest.approx(20)
    free = Target(train_accuracy=0.9)
    assert estimate(config(target=free), 300, 3, rates).seconds == pytest.approx(20)


def test_twice_the_epochs_do_not_start_twice(tmp_path: Path) -> None:
    write(tmp_path, config())
    found = estimate(config(epochs=6), 600, 6, known_rates(tmp_path))
    assert found.seconds == pytest.approx(11 + 600 / 50 + 6 * 1)


def test_medians_over_cells_of_all_sweeps(tmp_path: Path) -> None:
    for seed, (rate, wall) in enumerate([(50.0, 20.0), (100.0, 20.0), (300.0, 15.0)]):
        run = config(seed=seed)
        write(tmp_path, run, images_per_s=rate, wall_s=wall, sweep=f"sweep{seed}")
    (found,) = known_rates(tmp_path).values()
    # fixed: 20 - 3 - 6, 20 - 3 - 3, 15 - 3 - 1
    assert found == Rate(100.0, 11.0, 1.0, 3)


def test_the_nearest_rank_count_is_scaled_in_proportion(tmp_path: Path) -> None:
    write(tmp_path, config(gpus=1))
    write(tmp_path, config(gpus=4, batch_per_rank=5), images_per_s=160.0)
    found = estimate(config(gpus=8), 320, 3, known_rates(tmp_path))
    fixed = 20 - 3 - 300 / 160
    assert found.seconds == pytest.approx(fixed + 320 / (160 * 2) + 3)
    assert found.source == "1 earlier cell on gpus=4, scaled in proportion"
    down = estimate(config(gpus=2), 320, 3, known_rates(tmp_path))
    assert "gpus=1" in down.source  # as near as 4: the smaller one


def test_another_normalisation_is_better_than_another_rank_count(tmp_path: Path) -> None:
    write(tmp_path, config(gpus=2, normalisation="batch_norm"))
    write(tmp_path, config(gpus=1))
    found = estimate(config(gpus=2), 300, 3, known_rates(tmp_path))
    assert found.seconds == pytest.approx(20.0)
    assert found.source == "1 earlier cell on gpus=2 with normalisation batch_norm"


def test_the_same_normalisation_comes_first_at_equal_distance(tmp_path: Path) -> None:
    write(tmp_path, config(gpus=1, normalisation="batch_norm"))
    write(tmp_path, config(gpus=4))
    found = estimate(config(gpus=2), 300, 3, known_rates(tmp_path))
    assert found.source == "1 earlier cell on gpus=4, scaled in proportion"


@pytest.mark.parametrize(
    "changes",
    [{"dataset": "mnist"}, {"model": "resnet_mini"}, {"framework": "mirrored"},
     {"precision": "mixed_bfloat16"}],
)  # fmt: skip
def test_other_work_says_nothing(tmp_path: Path, changes: dict[str, str]) -> None:
    write(tmp_path, config())
    found = estimate(config(**changes), 300, 3, known_rates(tmp_path))
    assert found == Estimate(None, "never run here")


@pytest.mark.parametrize("changes", [{"width": 2.0}, {"shortcuts": False}])
def test_another_width_or_other_blocks_are_other_work(tmp_path: Path, changes: dict) -> None:
    write(tmp_path, config(model="resnet_mini"))
    rates = known_rates(tmp_path)
    assert estimate(config(model="resnet_mini"), 300, 3, rates).seconds is not None
    assert estimate(config(model="resnet_mini", **changes), 300, 3, rates).seconds is None


def test_folders_of_other_image_sizes_are_other_work(tmp_path: Path) -> None:
    write(tmp_path, config(dataset="folder:a", image_size=32))
    rates = known_rates(tmp_path)
    assert estimate(config(dataset="folder:a", image_size=64), 300, 3, rates).seconds is None
    assert estimate(config(dataset="folder:a", image_size=32), 300, 3, rates).seconds is not None


@pytest.mark.parametrize(
    "changes",
    [{"status": "failed"}, {"status": "diverged"}, {"images_per_s": None}, {"attempts": 2}],
)
def test_records_that_tell_no_steady_time_are_left_out(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    write(tmp_path, config(), **changes)
    assert known_rates(tmp_path) == {}


def test_unreadable_records_are_skipped(tmp_path: Path) -> None:
    write(tmp_path, config())
    broken = tmp_path / "s" / "broken"
    broken.mkdir()
    (broken / "record.json").write_text('{"schema_version": 1, "cell')
    (tmp_path / "s" / "folder" / "record.json").mkdir(parents=True)
    assert len(known_rates(tmp_path)) == 1
    assert known_rates(tmp_path / "absent") == {}


def test_a_rate_that_promises_more_than_the_wall_time_never_makes_negative_time(
    tmp_path: Path,
) -> None:
    write(tmp_path, config(), images_per_s=10.0, wall_s=20.0)
    rates = known_rates(tmp_path)
    assert rates[rate_key(config())].fixed_s == 0.0


def test_a_record_that_cannot_be_read_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, config())
    unreadable(tmp_path / "s" / "another" / "record.json")
    assert list(known_rates(tmp_path)) == [rate_key(config())]
