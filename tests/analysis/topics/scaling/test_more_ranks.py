"""What more ranks gave, what they are worth, and what the next doublings would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.page.report import Report, build
from analysis.records.load import load_frames
from analysis.table import plain_rows
from analysis.topics.topic import Answer
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


def answer(found: Report, key: str = "more_ranks") -> Answer:
    (one,) = (a for a in found.answers if a.key == key)
    return one


AT_LEAST = "each added one gives at least 70 % of the throughput that a rank had before"


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({1: 100, 2: 190, 4: 350, 8: 560, 16: 1000}, f"Yes, up to 4 ranks: {AT_LEAST}. Each added "
         "rank gives 60 % (60 % to 60 %) from 4 to 8, 79 % (78 % to 79 %) from 8 to 16 (1 to 4 "
         "nodes)."),
        ({2: 100, 4: 120, 8: 230}, "less than 70 % of the throughput that a rank had before."),
        ({3: 300, 4: 400, 6: 600, 8: 800, 12: 1200, 16: 1250}, "Yes, up to 12 ranks"),
        ({1: 100, 2: 198, 8: 300, 16: 600}, f"Yes, up to 2 ranks: {AT_LEAST}."),  # no doubling
        ({1: 100, 2: 170, 4: 340}, "whether each added rank up to 4 gives 70 % of the"),
        ({1: 100, 2: 190, 4: 323}, f"{AT_LEAST}; from 2 to 4 ranks this is undecided."),
    ],
)  # fmt: skip
def test_ranks_are_worth_it_up_to_the_last_that_pays(
    tmp_path: Path, rates: dict[int, float], said: str
) -> None:
    items = [record(config(gpus=k, seed=seed), images_per_s=rate * (1 + seed / 1000),
                    world_changes={"nodes": 4, "hostnames": (*"abcd" * 4,)} if k == 16 else {})
             for k, rate in rates.items() for seed in range(3)]  # fmt: skip
    assert said in answer(report(tmp_path, items)).text


def test_the_answer_names_its_series_and_its_interval(tmp_path: Path) -> None:
    """Of two batches per rank the first; single runs leave all open."""
    twice = [item for batch in (16, 32) for k, step in ((1, 1.0), (2, 1.5))
             for item in runs(k, step, seeds=1, batch_per_rank=batch)]  # fmt: skip
    said = "With naive (weak, 16 per rank), 2 ranks give 1.33 times the throughput of 1, without an"
    assert answer(report(tmp_path, twice)).text.startswith(said)


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
    said = answer(found, "forecast").text
    assert "Extrapolated, efficiency is 0.74 (" in said
    assert "(the step on 4 ranks, extrapolated from fewer, comes out 0.0 % too" in said


def test_a_count_that_is_slower_than_the_smaller_ones_predict_is_said(tmp_path: Path) -> None:
    late = [i for k in (1, 2, 4, 8)
            for i in runs(k, (1 + 0.1 * (k - 1) / k) * (1.5 if k == 8 else 1))]  # fmt: skip
    fit = "No forecast: fitted to the smaller counts, the step on 8 ranks comes out 33 %"
    assert fit in answer(report(tmp_path, late), "forecast").text
