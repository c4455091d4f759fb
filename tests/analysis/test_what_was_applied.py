"""Budgets and rates are what the epochs of a record add up to, whatever its config says."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.applied import NO_GAIN, OLDER, applied_table, applied_view
from analysis.frames import epochs_frame, runs_frame
from analysis.trust import trust_table, trust_view
from tests.analysis.builders import config, record, technique
from train.config.optimizer import Lamb, Larc
from train.config.run import RunConfig
from train.config.schedule import Grow
from train.record.run import RunRecord, TrustRatios

RATES = [
    {"lr_first": 0.1, "lr_mean": 0.2, "lr_last": 0.3},
    {"lr_first": 0.3, "lr_mean": 0.25, "lr_last": 0.2},
    {"lr_first": 0.2, "lr_mean": 0.1, "lr_last": 0.0},
]
GROWS = technique("naive", batch_growth=Grow(milestones=(0.3, 0.7), factor=2, largest=160))


def table(*items: RunRecord) -> pd.DataFrame:
    runs = runs_frame(items)
    return applied_table(runs, epochs_frame(items, runs), ["naive", "lamb"])


def cells(*items: RunRecord) -> dict[str, str]:
    view = applied_view(table(*items), runs_frame(items))
    (row,) = view.rows
    return dict(zip([column.head for column in view.columns], row, strict=True)) | {
        "notes": " ".join(view.notes)
    }


def test_the_rate_as_applied_and_its_integral() -> None:
    """20 steps an epoch; the config's own rate is 0.1 throughout."""
    row = table(record(epoch_changes=RATES)).iloc[0]
    assert row["lr_peak_low"] == 0.3
    assert row["lr_integral_low"] == pytest.approx(20 * (0.2 + 0.25 + 0.1))


def test_a_peak_within_an_epoch_is_at_least_its_mean() -> None:
    within = {"lr_first": 0.1, "lr_mean": 0.4, "lr_last": 0.2}
    assert table(record(epoch_changes=within)).iloc[0]["lr_peak_high"] == 0.4


def test_a_growing_batch_is_counted_epoch_by_epoch() -> None:
    changes = [{"accumulation": times} for times in (1, 2, 4)]
    grown = record(config(technique=GROWS), epoch_changes=changes)
    row = table(grown).iloc[0]
    assert (row["batch_first"], row["batch_last"]) == (16, 64)
    assert (row["steps_low"], row["images_low"]) == (20 + 10 + 5, 960)
    assert row["lr_integral_low"] == pytest.approx(0.1 * 35)
    shown = cells(grown)
    assert (shown["global batch"], shown["batches a step"]) == ("16 → 64", "1 → 4")


def test_accumulation_shows_what_stands_in_for_ranks() -> None:
    shown = cells(record(config(gpus=2, batch_per_rank=4, accumulation=8)))
    assert (shown["ranks"], shown["global batch"], shown["batches a step"]) == ("2", "64", "8")
    assert shown["images seen"] == "960"


def test_runs_of_one_condition_that_differ_show_both_ends() -> None:
    items = [
        record(config(seed=0), epoch_changes={"skipped_steps": 1}),
        record(config(seed=1), epoch_changes={"skipped_steps": 4, "lr_mean": 0.05}),
        record(config(seed=2), status="diverged", accuracies=[None]),
    ]
    row = table(*items).iloc[0]
    assert (row["n"], row["n_diverged"]) == (2, 1)
    assert (row["skipped_steps_low"], row["skipped_steps_high"]) == (3, 12)
    shown = cells(*items)
    assert (shown["skipped"], shown["lr integral"]) == ("3 to 12", "2.40 to 5.70")
    assert shown["steps"] == "60"


def test_the_gain_is_weighted_by_steps_and_shown_only_where_there_is_one() -> None:
    changes = [{"accumulation": a, "gain": g} for a, g in ((1, 1.0), (2, 1.6), (4, 2.0))]
    scaled = record(config(technique=GROWS), epoch_changes=changes)
    gain = (20 * 1.0 + 10 * 1.6 + 5 * 2.0) / 35
    assert table(scaled).iloc[0]["gain_low"] == pytest.approx(gain)
    assert cells(scaled)["gain"] == "1.31"
    assert "gain" not in cells(record())
    both = (scaled, record(config("lamb")))
    view = applied_view(table(*both), runs_frame(both))
    assert NO_GAIN in " ".join(view.notes)


def test_an_older_record_has_no_integral_and_says_so() -> None:
    shown = cells(record(epoch_changes={"lr_mean": None}))
    assert shown["lr integral"] == "n/a ¹"
    assert shown["lr peak"] == "0.100"
    assert shown["notes"] == f"¹ {OLDER}"


def test_where_all_diverged_nothing_was_applied_to_the_end() -> None:
    shown = cells(record(status="diverged", accuracies=[None]))
    assert (shown["steps"], shown["global batch"], shown["runs"]) == ("n/a ¹", "n/a ¹", "0")
    assert shown["notes"] == "¹ no run completed"


def test_trust_ratios_of_the_first_and_the_last_epoch() -> None:
    def ratios(median: float, clipped: float) -> dict[str, TrustRatios]:
        parts = {"smallest": median / 10, "largest": median * 10, "clipped_share": clipped}
        return {"trust": TrustRatios(median=median, **parts)}

    def clipping(seed: int) -> RunConfig:
        return config("larc", seed=seed, technique=technique("larc", optimizer=Larc()))

    items = [
        record(clipping(seed), epoch_changes=[ratios(m, c) for m, c in found])
        for seed, found in enumerate(
            ([(0.02, 0.5), (9.0, 0.9), (0.04, 0.1)], [(0.04, 0.3), (9.0, 0.9), (0.08, 0.0)])
        )
    ]
    items.append(record(config("naive")))
    gone = clipping(2)
    items.append(record(gone, status="diverged", accuracies=[0.1], epoch_changes=ratios(50.0, 1.0)))
    runs = runs_frame(items)
    found = trust_table(runs, epochs_frame(items, runs), ["naive", "larc"])
    (row,) = (row for _, row in found.iterrows())
    assert row["technique"] == "larc" and row["n"] == 2
    assert row["first_median"] == pytest.approx(0.03)
    assert (row["first_smallest"], row["first_largest"]) == pytest.approx((0.002, 0.4))
    assert (row["first_clipped_share"], row["last_clipped_share"]) == pytest.approx((0.4, 0.05))
    assert (row["last_smallest"], row["last_largest"]) == pytest.approx((0.004, 0.8))
    view = trust_view(found, runs)
    (shown,) = view.rows
    assert [c.head for c in view.columns][4::2] == [
        "plain rate kept, first", "plain rate kept, last",
    ]  # fmt: skip
    assert shown[3:] == ("0.0300 [0.00200, 0.400]", "40 %", "0.0600 [0.00400, 0.800]", "5 %", "2")


@pytest.mark.parametrize("optimizer", [Lamb(), Larc(clip=False)])
def test_where_nothing_can_be_clipped_no_share_is_0(optimizer) -> None:
    trust = TrustRatios(median=0.02, smallest=0.001, largest=0.9, clipped_share=0.0)
    row = technique("row", optimizer=optimizer)
    items = [record(config("row", technique=row), epoch_changes={"trust": trust})]
    runs = runs_frame(items)
    (shown,) = trust_view(trust_table(runs, epochs_frame(items, runs), ["row"]), runs).rows
    assert (shown[4], shown[6]) == ("n/a", "n/a")


def test_no_trust_ratio_no_row() -> None:
    runs = runs_frame([record()])
    found = trust_table(runs, epochs_frame([record()], runs), ["naive"])
    assert len(found) == 0 and trust_view(found, runs).rows == ()


def test_empty() -> None:
    assert applied_view(table(), runs_frame([])).rows == ()
