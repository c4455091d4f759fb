"""Hardware times statistical efficiency, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.records.columns import SHARED_CORES
from analysis.table import Table
from analysis.topics.convergence import true_speedup
from tests.analysis.builders import cells
from tests.analysis.planned import sweep
from tests.analysis.topics.convergence.to_target import run
from train.record.run import RunRecord

RATES = {1: (100.0, 104.0, 96.0), 4: (300.0, 330.0, 310.0)}
EPOCHS = {1: (15, 16, 17), 4: (24, 26, 28)}


def made(*items: RunRecord) -> Table:
    return true_speedup.table(sweep(items))


def weak(gpus: int, **changes) -> list[RunRecord]:
    """Three runs at 16 images a rank."""
    return [run(16, seed, gpus=gpus, rate=RATES[gpus][seed], epochs=EPOCHS[gpus][seed], **changes)
            for seed in range(3)]  # fmt: skip


def test_the_product_is_what_the_target_gains() -> None:
    table = made(*weak(1), *weak(4))
    (row,) = table.data.to_dict("records")
    rates, images = ({ranks: np.log(values) for ranks, values in of.items()}
                     for of in (RATES, EPOCHS))  # fmt: skip
    hardware = np.exp(rates[4].mean() - rates[1].mean())
    statistical = np.exp(images[1].mean() - images[4].mean())
    assert row["hardware"] == pytest.approx(hardware)
    assert row["statistical"] == pytest.approx(statistical)
    assert row["total"] == pytest.approx(hardware * statistical)
    test = stats.ttest_ind(rates[4], rates[1], equal_var=False)
    ends = tuple(np.exp(test.confidence_interval(0.95)))
    assert (row["hardware_low"], row["hardware_high"]) == pytest.approx(ends)
    # the product: of each run's own quotient
    speeds = {ranks: rates[ranks] - images[ranks] for ranks in RATES}
    test = stats.ttest_ind(speeds[4], speeds[1], equal_var=False)
    ends = tuple(np.exp(test.confidence_interval(0.95)))
    assert (row["total_low"], row["total_high"]) == pytest.approx(ends)
    assert (row["gpus"], row["n0"], row["n"], row["n_base"]) == (4, 1, 3, 3)
    shown = cells(table)
    assert shown["mode"] == "weak, 16 per rank" and shown["runs"] == "3 / 3"
    assert shown["true speed-up"].startswith(f"{hardware * statistical:.2f} (")


def test_a_run_that_never_reached_it_leaves_no_mean() -> None:
    (row,) = made(*weak(1), *weak(4)[:2], run(16, 2, gpus=4, met=False)).data.to_dict("records")
    assert row["total_note"] == "1 run never reached the target: images to it have no mean"
    assert pd.isna(row["total"]) and pd.isna(row["hardware"])


def test_one_rank_count_has_no_row_and_techniques_no_common_baseline() -> None:
    assert not len(made(*weak(1)).data) and not len(made().data)
    assert not len(made(*weak(1), *weak(4, name="lamb")).data)


def test_reasons_of_the_machine() -> None:
    shared = run(16, gpus=4, world={"oversubscribed": True})
    (row,) = made(*weak(1), shared).data.to_dict("records")
    assert row["total_note"] == SHARED_CORES
    unknown = run(16, gpus=4).model_copy(
        update={"throughput": None, "missing": {"throughput": "one epoch"}}
    )
    (row,) = made(*weak(1), unknown).data.to_dict("records")
    assert row["total_note"] == "1 of 4 runs: one epoch"
