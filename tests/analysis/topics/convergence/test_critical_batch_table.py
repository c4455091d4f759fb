"""Which runs make a series of batches, and what the fit gives of runs that follow a known law."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from analysis.plots.figure import Figure, looks
from analysis.prediction.critical_batch import fit_critical_batch
from analysis.table import Table
from analysis.topics.convergence import critical_batch
from analysis.topics.topic import Sweep
from tests.analysis.builders import cells as shown
from tests.analysis.planned import sweep
from tests.analysis.topics.convergence.to_target import CRITICAL, SMALLEST, epochs_of, run
from train.config.run import Target
from train.record.run import RunRecord

BATCHES = (16, 32, 64, 128, 256)
FACTORS = (0.8, 1.0, 1.25)


def made(*items: RunRecord) -> Table:
    return critical_batch.fits(sweep(items))


def spread(*batches: int) -> list[tuple[int, int]]:
    """Batch and epochs of three runs each, around the law."""
    return [(batch, round(epochs_of(batch) * factor)) for batch in batches for factor in FACTORS]


def several(*batches: int, **changes) -> list[RunRecord]:
    return [run(batch, i, epochs=epochs, **changes)
            for i, (batch, epochs) in enumerate(spread(*batches))]  # fmt: skip


def test_the_law_is_given_back_with_its_interval() -> None:
    table = made(*several(*BATCHES))
    (row,) = table.data.to_dict("records")
    critical = row["critical_batch"]
    assert (row["steps_min"], critical) == pytest.approx((SMALLEST, CRITICAL), rel=0.05)
    assert row["critical_batch_low"] < CRITICAL < row["critical_batch_high"]
    assert (row["reached"], row["censored"], row["batches"]) == (15, 0, 5)
    cells = shown(table)
    assert cells["batches"] == "5 of 5, 16 to 256" and cells["reached"] == "15 of 15"
    assert cells["epochs"] == "12 to 75"
    assert cells["B_crit"].startswith(f"{critical:.0f} (")


def test_a_run_that_did_not_reach_it_counts_with_the_steps_that_it_had() -> None:
    """At batch 16 all end without the target after 12 epochs of 15, one of them since it
    diverged."""
    lost = [run(16, seed, epochs=12, met=False) for seed in (0, 1)]
    lost.append(run(16, 2, epochs=12, status="diverged"))
    (row,) = made(*several(*BATCHES[1:]), *lost).data.to_dict("records")
    assert (row["reached"], row["censored"]) == (12, 3)
    assert (row["batches"], row["batches_tried"], row["batch_low"]) == (4, 5, 16)
    every = [*spread(*BATCHES[1:]), *[(16, 12)] * 3]
    batches, steps = zip(*((batch, epochs * 256 // batch) for batch, epochs in every), strict=True)
    fit = fit_critical_batch(batches, steps, [True] * 12 + [False] * 3)
    assert (row["steps_min"], row["critical_batch"]) == (fit.steps_min.value, fit.batch.value)


def test_what_makes_the_batch_does_not_part_a_series() -> None:
    """Ranks, images per rank, accumulated batches; the rate follows the batch by one rule."""
    rule = {"lr_scaling": "linear"}
    ways = ((16, {}), (16, {"accumulation": 2}), (16, {"gpus": 4}),
            (32, {"gpus": 4, "scaling": "strong"}))  # fmt: skip
    items = [run(batch, seed, settings=rule, **way) for batch, way in ways for seed in (0, 1)]
    (row,) = made(*items).data.to_dict("records")
    assert (row["batches"], row["batch_high"], row["reached"]) == (4, 128, 8)
    assert row["critical_batch"] == pytest.approx(CRITICAL, rel=1e-4)
    assert row["context"] == (), "batches are said in a column of their own"


RATE = {rate: {"settings": {"base_lr": rate}} for rate in (0.1, 0.2, 0.4)}


def test_of_a_search_the_rate_of_the_fewest_steps_counts_at_each_batch() -> None:
    """At 32 the seed that both rates have decides, and all runs of the rate count; at 64 a rate
    did not get there."""
    items = [
        run(16, **RATE[0.1]), run(16, epochs=20, **RATE[0.2]), run(16, epochs=30, **RATE[0.4]),
        *(run(32, seed, **RATE[0.2]) for seed in (0, 1, 2)), run(32, epochs=90, **RATE[0.4]),
        run(64, **RATE[0.2]), run(64, epochs=5, met=False, **RATE[0.4]),
        run(128, **RATE[0.4]),
    ]  # fmt: skip
    table = made(*items)
    (row,) = table.data.to_dict("records")
    assert row["technique_label"] == "naive"
    assert (row["reached"], row["censored"], row["batches"]) == (6, 0, 4)
    assert row["critical_batch"] == pytest.approx(CRITICAL, rel=1e-3)
    assert row["steps_min"] == pytest.approx(SMALLEST, rel=1e-3)
    assert shown(table)["best rates"] == "16: 0.1*, 32: 0.2*, 64: 0.2*"


@pytest.mark.parametrize(
    ("runs", "best"),
    [
        # a rate that is tried later, with the first seed alone
        ({0.1: [(0, 40), (1, 40), (2, 40)], 0.2: [(0, 20)]}, 0.2),
        # one run of the best is lost
        ({0.1: [(0, 40), (1, 40), (2, 40)], 0.2: [(0, 20), (2, 22)]}, 0.2),
        # no seed in common
        ({0.1: [(0, 40)], 0.2: [(1, 20)]}, 0.2),
    ],
)
def test_rates_are_compared_by_the_seeds_that_they_share(runs, best) -> None:
    items = [run(16, s, epochs=n, **RATE[rate]) for rate, own in runs.items() for s, n in own]
    found = critical_batch.points(sweep([*items, run(32, **RATE[0.1])]))
    assert set(found.loc[found["global_batch"] == 16, "base_lr"]) == {best}


def test_where_no_rate_gets_there_the_one_with_the_most_steps_counts() -> None:
    items = [run(16, epochs=n, met=False, **RATE[rate]) for rate, n in ((0.1, 2), (0.2, 50))]
    found = critical_batch.points(sweep([*items, run(32, **RATE[0.1])]))
    assert set(found.loc[found["global_batch"] == 16, "base_lr"]) == {0.2}


def test_the_length_that_runs_may_have_parts_no_series() -> None:
    """A constant number of steps an epoch, so that epochs have as many images as the batch has."""
    items = [run(batch, steps_per_epoch=1, epochs=round(S)) for batch, S in ((16, 240), (32, 144))]
    (row,) = made(*items, run(64, steps_per_epoch=2, epochs=48)).data.to_dict("records")
    assert row["batches"] == 3 and row["context"] == ()


def test_series_are_apart_by_technique_settings_target_and_model() -> None:
    other = Target(validation_accuracy=0.35, held_for=1)
    items = [
        *several(16, 32), *several(16, 32, name="lamb"), *several(16, 32, target=other),
        *several(16, 32, settings={"label_smoothing": 0.2}), *several(16, model="resnet_mini"),
    ]  # fmt: skip
    found = made(*items).data
    assert found["technique"].tolist() == ["naive"] * 3 + ["lamb"]
    assert found["target"].tolist().count("validation accuracy 0.35") == 1
    assert found["technique_label"].nunique() == 3


def test_without_a_fit_the_reason_stands_there() -> None:
    cells = shown(made(*several(16, 32)))
    assert cells["B_crit"] == cells["S_min"] == "n/a ¹"
    assert cells["notes"] == "¹ 2 batch sizes reached the target, and the law needs 3"


def test_one_batch_has_no_row() -> None:
    assert not len(made(*several(16)).data)
    assert not len(made().data)


def test_a_bound_is_said_as_one() -> None:
    """Equal epochs: steps fall as 1 / batch. Equal steps: they do not fall."""
    perfect = made(*(run(batch, i, epochs=epochs) for batch in (16, 32, 64)
                     for i, epochs in enumerate((49, 50, 51))))  # fmt: skip
    row = perfect.data.iloc[0]
    assert pd.isna(row["critical_batch_high"]) and row["critical_batch_low"] > 64
    assert shown(perfect)["B_crit"].startswith("> ") and "a lower bound" in shown(perfect)["notes"]
    flat = made(*(run(batch, i, epochs=epochs * batch // 16) for batch in (16, 32, 64)
                  for i, epochs in enumerate((20, 21, 22))))  # fmt: skip
    row = flat.data.iloc[0]
    assert pd.isna(row["critical_batch_low"]) and row["critical_batch_high"] < 16
    assert shown(flat)["B_crit"].startswith("< ")


def test_batches_that_tell_nothing_give_no_number() -> None:
    """Three batches of one run each, far off any law."""
    wild = [run(batch, epochs=epochs) for batch, epochs in ((16, 4), (32, 60), (64, 8))]
    cells = shown(made(*wild))
    assert cells["B_crit"] == "n/a ¹" and "do not tell" in cells["notes"]


def test_a_batch_that_grows_is_no_batch() -> None:
    frames = sweep(several(*BATCHES)).frames
    runs = frames.runs.assign(global_batch_last=frames.runs["global_batch"] * 2)
    (row,) = critical_batch.fits(Sweep(replace(frames, runs=runs))).data.to_dict("records")
    assert row["critical_batch_note"] == critical_batch.GROWS


ORDER = ("naive", "lamb")


def drawn(*items: RunRecord, seen: tuple[str, ...] = ORDER) -> Figure:
    of = sweep(items)
    of.seen = looks(seen)
    return critical_batch.figure(of)


def exact(*batches: int, **changes) -> list[RunRecord]:
    return [run(batch, **changes) for batch in batches]


def test_a_dot_per_run_and_the_line_of_the_law() -> None:
    found = drawn(*exact(16, 32, 64, 128))
    assert "4 runs, one dot each" in found.caption and "Hollow" not in found.caption
    assert found.data["steps"].tolist() == [240, 144, 96, 72]
    line = found.svg.canvas.axes[0].lines[0]
    assert line.get_xdata()[[0, -1]] == pytest.approx([16, 128])
    expected = [SMALLEST * (1 + CRITICAL / batch) for batch in line.get_xdata()]
    assert line.get_ydata() == pytest.approx(expected, rel=1e-4)
    svg = str(found.svg)
    assert all(f">{text}<" in svg for text in ("16", "128", "global batch (log)"))


def test_censored_runs_are_hollow_and_said() -> None:
    found = drawn(*exact(16, 32, 64, 128), run(16, 1, met=False, epochs=5))
    assert "Hollow: the target was not reached" in found.caption
    hollow = found.data[~found.data["met"]]
    assert hollow["steps"].tolist() == [80], "the steps that it had"


def test_several_techniques_share_a_panel_and_workloads_do_not() -> None:
    found = drawn(*exact(16, 32, 64), *exact(16, 32, 64, name="lamb", epochs=50))
    assert found.data["panel"].nunique() == 1
    two = drawn(*exact(16, 32, 64), *exact(16, 32, 64, model="resnet_mini"))
    assert set(two.data["panel"]) == {"cnn", "resnet_mini"} and ">resnet_mini<" in str(two.svg)


def test_without_a_fit_there_are_dots_alone() -> None:
    found = drawn(*exact(16, 32))
    assert found.svg is not None and "Lines" not in found.caption


def test_a_search_is_drawn_though_no_other_figure_has_its_label() -> None:
    rates = [{"settings": {"base_lr": rate}} for rate in (0.1, 0.2)]
    items = [run(16, **rates[0]), run(32, **rates[0]), run(64, epochs=40, **rates[0])]
    found = drawn(*items, run(64, **rates[1]), seen=("naive (base_lr=0.1)", "naive (base_lr=0.2)"))
    assert ">naive<" in str(found.svg) and len(found.data) == 3
