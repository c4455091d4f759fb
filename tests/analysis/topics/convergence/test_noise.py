"""What the report says of the noise scale, against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from analysis.table import Table
from analysis.topics.convergence import noise as topic
from tests.analysis.builders import cells as row_of
from tests.analysis.builders import config, epoch, record
from tests.analysis.planned import sweep
from train.record.measurements import NoiseScale
from train.record.run import RunRecord

GPUS, BATCH = 2, 32


def noise(**changes: Any) -> NoiseScale:
    fields = {
        "steps": 10, "batch_small": 16, "batch_big": BATCH, "trace": 1.0, "gradient_sq": 1.0,
        "b_simple": None, "low": None, "high": None,
    }  # fmt: skip
    return NoiseScale(**{**fields, **changes})


def measured(value: float, low: float, high: float, **changes: Any) -> NoiseScale:
    return noise(trace=value, b_simple=value, low=low, high=high, **changes)


def censored(low: float | None) -> NoiseScale:
    return noise(interval="censored", low=low)


def too_short() -> NoiseScale:
    return noise(interval="too_few_steps", steps=2)


def run(seed: int, *noises: NoiseScale | None, name: str = "naive", **changes: Any) -> RunRecord:
    """One run; its epochs have these noise scales."""
    asked = config(name, seed=seed, gpus=GPUS, epochs=len(noises))
    found = tuple(
        epoch(i, asked, noise=noise, train_s=3.2) for i, noise in enumerate(noises, start=1)
    )
    return record(asked, epochs=found, throughput=None, **changes)


def around(value: float) -> NoiseScale:
    return measured(value, value / 2, value * 2)


GOOD = measured(50, 40, 60)


def made(*items: RunRecord) -> Table:
    return topic.table(sweep(items, techniques=["lamb", "naive"]))


def table(*items: RunRecord) -> pd.DataFrame:
    return made(*items).data


def cells(*items: RunRecord) -> dict[str, str]:
    """The first row as shown, by heading without "B_simple, "."""
    return {head.removeprefix("B_simple, "): cell for head, cell in row_of(made(*items)).items()}


def test_geometric_mean_and_interval_over_seeds() -> None:
    items = [run(s, *[around(v)] * 3) for s, v in enumerate((60.0, 120.0, 240.0))]
    row = table(*items).iloc[0]
    # t(0.975, 2) = 4.302653; the logarithms are ln 2 apart
    half = 4.302653 * math.log(2) / math.sqrt(3)
    ends = [120, 120 * math.exp(-half), 120 * math.exp(half)]
    assert row[["last", "last_low", "last_high"]].tolist() == pytest.approx(ends)
    shown = cells(*items)
    assert shown["last epoch"] == "120 (21.4 to 671)"
    assert "¹" not in shown["first epoch"]


def test_first_and_last_epoch() -> None:
    """By the manifest's order of techniques."""
    item = run(0, *(measured(v, v - 1, v + 1) for v in (10.0, 20.0, 30.0)), name="lamb")
    shown = cells(run(0, GOOD), item)
    assert shown["first epoch"].startswith("10.0 (9.00 to 11.0)")
    assert shown["last epoch"].startswith("30.0 (29.0 to 31.0)")


def test_only_epochs_that_all_runs_have_are_shown() -> None:
    """Runs that go on alone are the slow ones."""
    items = [run(0, *[measured(20, 10, 40)] * 3), run(1, measured(30, 10, 40), None, None)]
    row = table(*items).iloc[0]
    assert (row["last"], row["last_n"]) == (pytest.approx(600**0.5), 2)


@pytest.mark.parametrize(
    ("runs", "last", "note"),
    [
        # a mean of the others would be of the low ones
        ([(GOOD,), (censored(900.0),), (censored(300.0),)], "> 40.0", "censored in 2 of 3 runs"),
        ([(GOOD,), (censored(None),)], "n/a", "censored in 1 of 2 runs"),
        ([(too_short(),)], "n/a", "too few steps in an epoch (2)"),
        # no noise at all has no logarithm
        ([(measured(0.0, 0.0, 1e-6),)], "n/a",
         "too few steps in an epoch (10), or no noise between the batches of a step"),
        ([(GOOD,), (too_short(),)], "50.0 (40.0 to 60.0)",
         "of one run; 1 of 2 runs lack the value"),
        ([(None, GOOD, None)], "50.0 (40.0 to 60.0)", "of one run"),
    ],
)  # fmt: skip
def test_what_is_no_mean_over_runs_has_its_reason(runs, last: str, note: str) -> None:
    shown = cells(*(run(seed, *noises) for seed, noises in enumerate(runs)))
    assert shown["last epoch"] == f"{last} ¹" and f"¹ {note}" in shown["notes"]
    lost = run(9, *[measured(9000, 1, 1e6)] * len(runs[0]), status="diverged")
    with_lost = cells(*(run(seed, *noises) for seed, noises in enumerate(runs)), lost)
    assert with_lost == shown, "a diverged run is in no mean"


def test_without_noise_there_is_no_row() -> None:
    assert not len(table(run(0, None, None)))
