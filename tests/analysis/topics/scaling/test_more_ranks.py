"""What the next doublings would give, as the report prints it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.page.report import Report, build
from analysis.records.load import load_frames
from analysis.table import plain_rows
from analysis.topics.topic import Answer
from tests.analysis.builders import config, rank_steps, record, write_sweep
from tests.analysis.topics.scaling.test_how_far import timed
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


def answer(found: Report) -> Answer:
    (one,) = (a for a in found.answers if a.key == "forecast")
    return one


def test_what_is_predicted_is_said(tmp_path: Path) -> None:
    """Without the parts of a network, a step is computing and a ring's bytes."""

    def step(k: int) -> float:
        return 1 + 0.4 * (k - 1) / k

    found = report(tmp_path, [i for k in (1, 2, 4) for i in runs(k, step(k))])
    rows = plain_rows(found.tables["forecast"].data)
    assert [row["gpus"] for row in rows] == [8, 16]
    for row in rows:
        assert row["efficiency"] == pytest.approx(step(1) / step(row["gpus"]), rel=1e-6)
        assert row["efficiency_low"] < row["efficiency"] < row["efficiency_high"]
        assert row["hold_out"] == pytest.approx(0, abs=1e-6)
    said = answer(found).text
    assert "Extrapolated, efficiency is 0.74 (" in said
    assert "(the step on 4 ranks, extrapolated from fewer, comes out 0.0 % too" in said


def test_a_count_that_is_slower_than_the_smaller_ones_predict_is_said(tmp_path: Path) -> None:
    late = [i for k in (1, 2, 4, 8)
            for i in runs(k, (1 + 0.1 * (k - 1) / k) * (1.5 if k == 8 else 1))]  # fmt: skip
    fit = "No forecast: fitted to the smaller counts, the step on 8 ranks comes out 33 %"
    assert fit in answer(report(tmp_path, late)).text


def test_uneven_steps_have_no_forecast(tmp_path: Path) -> None:
    gives = "of the throughput that the median step gives: what makes other steps"
    for stalls, said in ((0.270, f"63 % {gives} longer"), (0.1447, f"117 % {gives} shorter")):
        items = [*timed(1, 0.160), *timed(2, 0.200, 0.165), *timed(4, stalls, 0.170)]
        found = report(tmp_path / str(stalls), items)
        (why,) = set(found.tables["forecast"].data["why"])
        assert why.startswith(f"compared with 1, 4 ranks have {said}")
        assert not any("xtrapolated" in answer.text for answer in found.answers)
