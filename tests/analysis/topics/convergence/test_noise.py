"""What the report says of the noise scale, against values worked out by hand."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pandas as pd
import pytest
from scipy import stats

from analysis.plots.figure import Figure, looks
from analysis.table import Table
from analysis.topics.convergence import noise as topic
from tests.analysis.builders import cells as row_of
from tests.analysis.builders import config, epoch, epochs_frame, record
from tests.analysis.planned import sweep
from train.record.run import NoiseScale, RunRecord

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


def made(*items: RunRecord) -> Table:
    return topic.table(sweep(items, techniques=["lamb", "naive"]))


def table(*items: RunRecord) -> pd.DataFrame:
    return made(*items).data


def cells(*items: RunRecord) -> dict[str, str]:
    """The first row as shown, by heading without "B_simple, "."""
    return {head.removeprefix("B_simple, "): cell for head, cell in row_of(made(*items)).items()}


def test_the_epochs_have_what_was_measured() -> None:
    items = [run(3, None, measured(50, 40, 60), censored(900.0))]
    found = epochs_frame(items)
    assert found["noise_b_simple"].tolist() == [pd.NA, 50, pd.NA]
    assert found["noise_low"].tolist() == [pd.NA, 40, 900]
    assert found["noise_censored"].tolist() == [pd.NA, False, True]
    second = found.iloc[1]
    assert (second["technique"], second["gpus"], second["global_batch"]) == ("naive", GPUS, BATCH)
    assert (second["seed"], second["noise_trace"], second["noise_gradient_sq"]) == (3, 50, 1)


def test_geometric_mean_and_interval_over_seeds() -> None:
    items = [run(s, *[measured(v, v / 2, v * 2)] * 3) for s, v in enumerate((60.0, 120.0, 240.0))]
    row = table(*items).iloc[0]
    assert row["last"] == pytest.approx(120)
    # t(0.975, 2) = 4.302653; the logarithms are ln 2 apart
    half = 4.302653 * math.log(2) / math.sqrt(3)
    assert row["last_low"] == pytest.approx(120 * math.exp(-half))
    assert row["last_high"] == pytest.approx(120 * math.exp(half))
    shown = cells(*items)
    assert shown["last epoch"] == "120 (21.4 to 671)"
    assert shown["notes"] == ""


def test_first_and_last_epoch() -> None:
    values = (10.0, 20.0, 30.0, 40.0, 50.0)
    item = run(0, *(measured(v, v - 1, v + 1) for v in values))
    shown, row = cells(item), table(item).iloc[0]
    assert shown["first epoch"] == "10.0 (9.00 to 11.0) ¹"
    assert shown["last epoch"] == "50.0 (49.0 to 51.0) ¹"
    assert shown["notes"] == "¹ of one run"
    assert [row[f"{when}_n"] for when in topic.WHEN] == [1, 1]


def test_only_epochs_that_all_runs_have_are_shown() -> None:
    """Runs that go on alone are the slow ones."""
    items = [run(0, *[measured(20, 10, 40)] * 3), run(1, measured(30, 10, 40), None, None)]
    row = table(*items).iloc[0]
    assert (row["last"], row["last_n"]) == (pytest.approx(600**0.5), 2)


def test_a_censored_run_leaves_a_lower_bound_and_no_mean() -> None:
    items = [run(0, measured(50, 40, 60)), run(1, censored(900.0)), run(2, censored(300.0))]
    row = table(*items).iloc[0]
    assert row["last_high"] is pd.NA
    assert row["last_low"] == 40  # a mean of the others would be of the low ones
    shown = cells(*items)
    assert shown["last epoch"] == "> 40.0 ¹"
    assert shown["notes"] == "¹ censored in 2 of 3 runs"


GOOD = measured(50, 40, 60)


@pytest.mark.parametrize(
    ("runs", "last", "note"),
    [
        ([(censored(None),)], "n/a ¹", "¹ censored in 1 of 1 run"),
        ([(GOOD,), (censored(None),)], "n/a ¹", "¹ censored in 1 of 2 runs"),
        ([(too_short(),)], "n/a ¹", "¹ too few steps in an epoch (2)"),
        # no noise at all has no logarithm
        ([(measured(0.0, 0.0, 1e-6),)], "n/a ¹", "or no noise between the batches of a step"),
        ([(GOOD,), (too_short(),)], "50.0 (40.0 to 60.0) ¹",
         "¹ of one run; 1 of 2 runs lack the value"),
        ([(None, GOOD, None)], "50.0 (40.0 to 60.0) ¹", "¹ of one run"),
    ],
)  # fmt: skip
def test_what_is_no_mean_over_runs_has_its_reason(runs, last: str, note: str) -> None:
    shown = cells(*(run(seed, *noises) for seed, noises in enumerate(runs)))
    assert shown["last epoch"] == last and note in shown["notes"]
    lost = run(9, *[measured(9000, 1, 1e6)] * len(runs[0]), status="diverged")
    with_lost = cells(*(run(seed, *noises) for seed, noises in enumerate(runs)), lost)
    assert with_lost == shown, "a diverged run is in no mean"


def test_a_batch_that_grew_is_shown_from_first_to_last() -> None:
    item = run(0, measured(50, 40, 60), measured(50, 40, 60, batch_big=400))
    assert cells(item)["global batch"] == "32 → 400"


def test_empty() -> None:
    assert len(made(run(0, None, None)).data) == 0
    assert made().shown().rows == ()


def test_growth_is_of_each_run_by_itself() -> None:
    """Runs that differ by a factor of ten all grow fourfold, to within a tenth."""
    starts, factors = (10.0, 100.0, 1000.0), (3.8, 4.0, 4.2)
    items = [
        run(seed, *(measured(v, v / 2, 2 * v) for v in (start, start, start * factor)))
        for seed, (start, factor) in enumerate(zip(starts, factors, strict=True))
    ]
    row = table(*items).iloc[0]
    test = stats.ttest_1samp([math.log(factor) for factor in factors], 0)
    low, high = (math.exp(end) for end in test.confidence_interval(0.95))
    assert (row["growth_low"], row["growth_high"]) == pytest.approx((low, high))
    assert row["growth"] == pytest.approx(math.prod(factors) ** (1 / 3))
    assert cells(*items)["last / first"].startswith("4.00 (")


def test_no_growth_of_the_runs_that_are_left() -> None:
    grown = [run(seed, measured(9, 8, 10), measured(90, 80, 100)) for seed in range(2)]
    items = [*grown, run(2, measured(9, 8, 10), censored(500.0))]
    row = table(*items).iloc[0]
    assert pd.isna(row["growth"]) and row["growth_note"] == "censored in 1 of 3 runs"
    lacks = table(*grown, run(2, too_short(), measured(90, 80, 100))).iloc[0]
    assert "1 of 3 runs lack the value" in lacks["growth_note"] and lacks["growth_n"] == 2
    for noises in ((too_short(), GOOD), (GOOD,)):
        none = table(run(0, *noises)).iloc[0]
        assert none["growth_note"] == "no run has it in both epochs" and pd.isna(none["growth"])


def test_rows_follow_the_manifest() -> None:
    found = table(run(0, GOOD), run(0, measured(70, 60, 80), name="lamb"))
    assert found["last"].tolist() == [70, 50]


def around(value: float) -> NoiseScale:
    return measured(value, value / 2, value * 2)


def drawn(*items: RunRecord) -> Figure | None:
    return topic.figure(sweep(items))


def test_a_point_is_the_geometric_mean_at_the_steps_so_far() -> None:
    one = run(0, around(100.0), around(400.0))
    other = run(1, around(400.0), around(900.0))
    found = drawn(one, other)
    assert found is not None
    assert found.data["value"].tolist() == pytest.approx([200, 600])
    steps = one.epochs[0].steps
    assert found.data["step"].tolist() == [steps, 2 * steps]
    assert ">naive<" in str(found.svg)


def test_where_a_run_is_censored_there_is_a_bound_and_no_mean() -> None:
    items = [run(0, around(100.0), censored(50.0)), run(1, around(100.0), around(90.0))]
    found = drawn(*items)
    assert found is not None
    assert math.isnan(found.data["value"][1]) and found.data["low"][1] <= 50
    assert "Hollow" in found.caption


def test_a_bound_of_zero_is_left_out() -> None:
    items = [run(seed, censored(0.0), around(90.0), around(100.0)) for seed in (0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a logarithmic axis has no place for it
        found = drawn(*items)
    assert found is not None
    assert math.isnan(found.data["low"][0])


def test_one_epoch_makes_no_curve_and_hidden_techniques_none() -> None:
    assert drawn(run(0, around(100.0))) is None
    of = sweep([run(0, around(1.0), around(2.0))])
    of.seen = looks(["lamb"])
    assert topic.figure(of) is None
