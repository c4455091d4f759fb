"""What more ranks gave, what they are worth, and what the next doublings would give."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from analysis.page.report import Report, build
from analysis.page.write import write_report
from analysis.prediction.forecast import FORECAST_NAME, Forecast
from analysis.records.load import load_frames
from analysis.table import plain_rows
from tests.analysis.builders import config, rank_steps, record, write_sweep
from train.record.run import RunRecord

BATCH = 16


def runs(
    gpus: int,
    step: float,
    *,
    sending: float = 0.0,
    seeds: int = 3,
    batch_per_rank: int = BATCH,
    **changes: Any,
) -> list[RunRecord]:
    """Seeds that differ by 1 %; every step was taken in parts, as in records of before."""
    found = []
    for seed in range(seeds):
        took = step * (1 + seed / 100)
        parts = tuple(rank_steps(rank, took, 0.0, sending) for rank in range(gpus))
        found.append(record(config(gpus=gpus, seed=seed, batch_per_rank=batch_per_rank),
                            steps=parts, images_per_s=batch_per_rank * gpus / took,
                            wall_s=3600, **changes))  # fmt: skip
    return found


def report(folder: Path, items: list[RunRecord]) -> Report:
    return build(load_frames(write_sweep(folder / "s", items)), draw=False)


def test_an_increase_is_told_by_speed_up_gain_and_cost(tmp_path: Path) -> None:
    found = report(tmp_path, [*runs(1, 1.0), *runs(2, 1.25), *runs(6, 2.0)])
    first, second = plain_rows(found.tables["increases"].data)
    assert (first["gpus"], second["gpus"]) == (2, 6)
    rates = {int(k): np.log(own.astype(float)) for k, own in
             found.frames.runs.groupby("gpus")["images_per_s"]}  # fmt: skip
    ratio = math.exp(rates[2].mean() - rates[1].mean())
    assert ratio == pytest.approx(2 / 1.25, rel=0.02)
    assert first["speedup"] == pytest.approx(ratio)
    assert first["marginal"] == pytest.approx(ratio - 1)
    assert first["hours"] == pytest.approx(2 / ratio - 1)
    ratio = math.exp(rates[6].mean() - rates[2].mean())
    assert second["marginal"] == pytest.approx((ratio - 1) / 2)
    assert second["hours"] == pytest.approx(3 / ratio - 1)
    low, high = stats.ttest_ind(rates[2], rates[1], equal_var=False).confidence_interval(0.95)
    assert (first["speedup_low"], first["speedup_high"]) == pytest.approx(np.exp([low, high]))
    assert first["marginal_low"] == pytest.approx(np.exp(low) - 1)
    assert first["hours_high"] == pytest.approx(2 / np.exp(low) - 1)
    shown = found.tables["increases"].shown()
    ranks = [column.heading for column in shown.columns].index("ranks")
    assert [row[ranks] for row in shown.rows] == ["1 → 2", "2 → 6"]
    (worth,) = plain_rows(found.tables["recommended"].data)
    assert (worth["gpus"], worth["gpus_low"], worth["gpus_high"]) == (1, 1, 1)


def test_all_measured_ranks_may_be_worth_it(tmp_path: Path) -> None:
    found = report(tmp_path, [*runs(1, 1.0), *runs(2, 1.02), *runs(4, 1.05)])
    (worth,) = plain_rows(found.tables["recommended"].data)
    assert (worth["gpus"], worth["gpus_note"]) == (4, "4 is the largest count measured")
    (answer,) = (a for a in found.answers if a.key == "more_ranks")
    assert answer.text.startswith("Yes, up to 4 ranks: each added one gives at least 70 % ")


def test_the_answer_names_its_series_and_its_interval(tmp_path: Path) -> None:
    """Of two batches per rank the first; single runs leave all open."""
    items = [*runs(1, 1.0, seeds=1), *runs(2, 1.5, seeds=1)]
    (answer,) = (a for a in report(tmp_path / "a", items).answers if a.key == "more_ranks")
    assert answer.text.startswith("2 ranks give 1.33 times the throughput of 1, too few")
    twice = [item for batch, gain in ((16, 1.0), (32, 0.9)) for k, step in ((1, 1.0), (2, 1.9))
             for item in runs(k, step * (gain if k == 2 else 1), batch_per_rank=batch)]  # fmt: skip
    (answer,) = (a for a in report(tmp_path / "b", twice).answers if a.key == "more_ranks")
    assert answer.text.startswith("With naive (weak, 16 a rank), 2 ranks give 1.05 (1.0")


def test_what_is_predicted_is_written_and_said(tmp_path: Path) -> None:
    """Without the parts of a network, a step is computing and a ring's bytes."""

    def step(k: int) -> float:
        return 1 + 0.4 * (k - 1) / k

    folder = write_sweep(tmp_path / "s", [i for k in (1, 2, 4) for i in runs(k, step(k))])
    found = build(load_frames(folder), draw=False)
    rows = plain_rows(found.tables["forecast"].data)
    assert [row["gpus"] for row in rows] == [8, 16]
    for row in rows:
        assert row["efficiency"] == pytest.approx(step(1) / step(row["gpus"]), rel=1e-6)
        assert row["efficiency_low"] < row["efficiency"] < row["efficiency_high"]
        assert row["hold_out"] == pytest.approx(0, abs=1e-6)
    (answer,) = (a for a in found.answers if a.key == "more_ranks")
    assert "A model expects an efficiency of 0.74 (" in answer.text
    assert "(its error at 4 ranks: +0.0 %)" in answer.text
    write_report(found, folder)
    kept = Forecast.model_validate_json(
        (folder / "report" / FORECAST_NAME).read_text(encoding="utf-8")
    )
    (series,) = kept.series
    assert kept.schema_version == 1
    assert [p.ranks for p in series.points] == [8, 16] and series.network == "ring"


def test_shared_cores_get_a_reason_and_no_number(tmp_path: Path) -> None:
    shared = {"world_changes": {"oversubscribed": True}}
    found = report(tmp_path, [*runs(1, 1.0), *runs(2, 1.2), *runs(4, 2.5, **shared)])
    (row,) = plain_rows(found.tables["forecast"].data)
    assert row["efficiency"] is None and "share cores" in row["efficiency_note"]


def test_a_count_that_is_slower_than_the_smaller_ones_predict_is_named(tmp_path: Path) -> None:
    def step(k: int) -> float:
        return 1 + 0.1 * (k - 1) / k

    good = [i for k in (1, 2, 4) for i in runs(k, step(k))]
    found = report(tmp_path / "a", [*good, *runs(8, 1.02 * step(8))])
    assert not any("slower than the smaller counts" in c.text for c in found.cautions)
    found = report(tmp_path / "b", [*good, *runs(8, 1.5 * step(8))])
    (late,) = (c.text for c in found.cautions if "slower than the smaller counts" in c.text)
    took = 1.5 * step(8) * math.prod(1 + i / 100 for i in range(3)) ** (1 / 3)
    assert late.startswith(
        f"naive: slower than the smaller counts suggest: {took:.3g} s a step on 8"
    )
