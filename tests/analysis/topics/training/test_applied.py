"""Budgets and rates are what the epochs of a record add up to, whatever its config says."""

from __future__ import annotations

import pandas as pd

from analysis.table import Table
from analysis.topics.training import applied
from tests.analysis.builders import cells as row_of
from tests.analysis.builders import config, record, technique
from tests.analysis.planned import sweep
from train.config.schedule import Grow
from train.record.run import RunRecord

RATES = [
    {"lr_first": 0.1, "lr_mean": 0.2, "lr_last": 0.3},
    {"lr_first": 0.3, "lr_mean": 0.25, "lr_last": 0.2},
    {"lr_first": 0.2, "lr_mean": 0.1, "lr_last": 0.0},
]
GROWS = technique("naive", batch_growth=Grow(milestones=(0.3, 0.7), factor=2, largest=160))


def made(*items: RunRecord) -> Table:
    return applied.table(sweep(items))


def table(*items: RunRecord) -> pd.DataFrame:
    return made(*items).data


def cells(*items: RunRecord) -> dict[str, str]:
    return row_of(made(*items))


def test_the_rate_as_applied() -> None:
    """The config's own rate is 0.1 throughout."""
    row = table(record(epoch_changes=RATES)).iloc[0]
    assert row["lr_peak_low"] == 0.3


def test_a_peak_within_an_epoch_is_at_least_its_mean() -> None:
    within = {"lr_first": 0.1, "lr_mean": 0.4, "lr_last": 0.2}
    assert table(record(epoch_changes=within)).iloc[0]["lr_peak_high"] == 0.4


def test_a_growing_batch_is_counted_epoch_by_epoch() -> None:
    changes = [{"accumulation": times} for times in (1, 2, 4)]
    grown = record(config(technique=GROWS), epoch_changes=changes)
    row = table(grown).iloc[0]
    assert (row["batch_first"], row["batch_last"]) == (16, 64)
    assert (row["steps_low"], row["images_low"]) == (20 + 10 + 5, 960)
    shown = cells(grown)
    assert (shown["global batch"], shown["batches a step"]) == ("16 → 64", "1 → 4")


def test_accumulation_shows_what_stands_in_for_ranks() -> None:
    many = record(config(gpus=2, batch_per_rank=4, accumulation=8))
    shown = cells(many, record(config("lamb")))
    assert cells(many)["batches a step"] == "8"
    assert (shown["ranks"], shown["global batch"], shown["batches a step"]) == ("2", "64", "8")
    assert shown["images seen"] == "960"


def test_runs_of_one_condition_that_differ_show_both_ends() -> None:
    items = [
        record(config(seed=0), epoch_changes={"skipped_steps": 1}),
        record(config(seed=1), epoch_changes={"skipped_steps": 4, "lr_mean": 0.05}),
        record(config(seed=2), status="diverged", accuracies=[None]),
    ]
    row = table(*items).iloc[0]
    assert (row["n"], row["cells"]) == (2, tuple(item.cell_id for item in items[:2]))
    assert (row["skipped_steps_low"], row["skipped_steps_high"]) == (3, 12)
    shown = cells(*items)
    assert shown["skipped"] == "3 to 12"
    assert (shown["steps"], shown["runs"]) == ("60", "2")


def test_a_step_skipped_in_one_run_alone_is_shown() -> None:
    items = [record(config(seed=s), epoch_changes=[{"skipped_steps": s}, {}, {}]) for s in (0, 1)]
    assert cells(*items)["skipped"] == "0 to 1"
    assert "skipped" not in cells(items[0])


def test_where_all_diverged_nothing_was_applied_to_the_end() -> None:
    assert len(table(record(status="diverged", accuracies=[None]))) == 0


def test_rows_are_in_the_order_of_the_manifest() -> None:
    found = table(record(config("lamb")), record(config(gpus=2)), record())
    assert list(zip(found["technique"], found["gpus"], strict=True)) == [
        ("naive", 1), ("naive", 2), ("lamb", 1),
    ]  # fmt: skip


def test_empty() -> None:
    assert made().shown().rows == ()
