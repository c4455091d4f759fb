"""Which runs make a series of batches, and what the fit gives of runs that follow a known law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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


def made(*items: RunRecord) -> Table:
    return critical_batch.fits(sweep(items))


def spread(*batches: int) -> list[tuple[int, int]]:
    """Batch and epochs of three runs each, around the law."""
    return [(batch, round(epochs_of(batch) * factor))
            for batch in batches for factor in (0.8, 1.0, 1.25)]  # fmt: skip


def several(runs: Sequence[tuple[int, int]], **changes) -> list[RunRecord]:
    """A run per batch and epochs."""
    return [run(batch, i, epochs=epochs, **changes) for i, (batch, epochs) in enumerate(runs)]


def drawn(*items: RunRecord) -> Figure:
    of = sweep(items)
    of.seen = looks(("naive", "lamb"))
    return critical_batch.figure(of)


def test_the_law_is_given_back_with_its_interval() -> None:
    table = made(*several(spread(*BATCHES)))
    (row,) = table.data.to_dict("records")
    critical = row["critical_batch"]
    assert (row["steps_min"], critical) == pytest.approx((SMALLEST, CRITICAL), rel=0.05)
    assert row["critical_batch_low"] < CRITICAL < row["critical_batch_high"]
    cells = shown(table)
    assert cells["batches"] == "5 of 5, 16 to 256" and cells["reached"] == "15 of 15"
    assert cells["epochs"] == "12 to 75"
    assert cells["B_crit"].startswith(f"{critical:.0f} (")


def test_a_run_that_did_not_reach_it_counts_with_the_steps_that_it_had() -> None:
    """At batch 16 all end without the target after 12 epochs of 15, one of them since it
    diverged."""
    lost = [run(16, seed, epochs=12, met=False) for seed in (0, 1)]
    items = [*several(spread(*BATCHES[1:])), *lost, run(16, 2, epochs=12, status="diverged")]
    (row,) = made(*items).data.to_dict("records")
    assert (row["reached"], row["censored"]) == (12, 3)
    assert (row["batches"], row["batches_tried"], row["batch_low"]) == (4, 5, 16)
    every = [*spread(*BATCHES[1:]), *[(16, 12)] * 3]
    batches, steps = zip(*((batch, epochs * 256 // batch) for batch, epochs in every), strict=True)
    fit = fit_critical_batch(batches, steps, [True] * 12 + [False] * 3)
    assert (row["steps_min"], row["critical_batch"]) == (fit.steps_min.value, fit.batch.value)
    found = drawn(*items)
    assert "Hollow: the target was not reached" in found.caption
    assert found.data.loc[~found.data["met"], "steps"].tolist() == [192] * 3


def test_a_rate_for_each_batch_is_one_series_several_are_several() -> None:
    """As after a search: the batch says which rate a run has."""
    items = [run(batch, seed, epochs=round(epochs_of(batch) * factor),
                 settings={"base_lr": batch / 1000})
             for batch in BATCHES for seed, factor in enumerate((0.8, 1.0, 1.25))]  # fmt: skip
    (row,) = made(*items).data.to_dict("records")
    assert (row["technique_label"], row["reached"]) == ("naive", 15)
    assert row["critical_batch"] == pytest.approx(CRITICAL, rel=0.05)
    assert drawn(*items).data["technique_label"].unique().tolist() == ["naive"]
    every = made(*items, *(run(batch, settings={"base_lr": 0.5}) for batch in BATCHES)).data
    assert every["technique_label"].tolist() == ["naive (base_lr=0.5)"]
    # of another target, with rates of its own
    other = Target(validation_accuracy=0.35, held_for=1)
    more = [run(batch, settings={"base_lr": batch / 500}, target=other) for batch in BATCHES]
    assert made(*items, *more).data["critical_batch"].notna().tolist() == [True, True]


@pytest.mark.parametrize("items", [
    # ranks, images per rank, accumulated batches
    [run(batch, settings={"lr_scaling": "linear"}, **way) for batch, way in (
        (16, {}), (16, {"accumulation": 2}), (16, {"gpus": 4}),
        (32, {"gpus": 4, "scaling": "strong"}))],
    # a constant number of steps an epoch, so that epochs have as many images as the batch has
    [run(16, steps_per_epoch=1, epochs=240), run(32, steps_per_epoch=1, epochs=144),
     run(64, steps_per_epoch=2, epochs=48), run(128, epochs=36)],
])  # fmt: skip
def test_neither_what_makes_the_batch_nor_the_length_parts_a_series(items: list[RunRecord]) -> None:
    (row,) = made(*items).data.to_dict("records")
    assert (row["batches"], row["batch_high"], row["context"]) == (4, 128, ())


def test_series_are_apart_by_technique_settings_target_and_model() -> None:
    other = Target(validation_accuracy=0.35, held_for=1)
    changes = [
        {}, {"name": "lamb"}, {"target": other}, {"settings": {"label_smoothing": 0.2}},
        {"settings": {"base_lr": 0.2}},
    ]  # fmt: skip
    items = [run(batch, **one) for one in changes for batch in (16, 32)]
    found = made(*items, run(64, model="resnet_mini")).data
    assert found["technique"].tolist() == ["naive"] * 4 + ["lamb"]
    assert found["batches"].tolist() == [2] * 5 and found["technique_label"].nunique() == 4


@pytest.mark.parametrize(("runs", "cell", "note"), [
    (spread(16, 32), "n/a ¹", "2 batch sizes reached the target, and the law needs 3"),
    # one run each, far off any law
    ([(16, 4), (32, 60), (64, 8)], "n/a ¹", "these batches do not tell where"),
    # equal epochs: steps fall as 1 / batch; equal steps: they do not fall
    ([(batch, n) for batch in (16, 32, 64) for n in (49, 50, 51)], "> ", "a lower bound"),
    ([(batch, n * batch // 16) for batch in (16, 32, 64) for n in (20, 21, 22)], "< ", "an upper "),
])  # fmt: skip
def test_what_is_no_number_has_its_reason(
    runs: list[tuple[int, int]], cell: str, note: str
) -> None:
    cells = shown(made(*several(runs)))
    assert cells["B_crit"].startswith(cell) and note in cells["notes"]


def test_a_batch_that_grows_is_no_batch() -> None:
    frames = sweep(several(spread(*BATCHES))).frames
    runs = frames.runs.assign(global_batch_last=frames.runs["global_batch"] * 2)
    (row,) = critical_batch.fits(Sweep(replace(frames, runs=runs))).data.to_dict("records")
    assert row["critical_batch_note"] == critical_batch.GROWS


def test_a_dot_per_run_and_the_line_of_the_law() -> None:
    found = drawn(*map(run, BATCHES[:4]))
    assert "4 runs, one dot each" in found.caption and "Hollow" not in found.caption
    assert found.data["steps"].tolist() == [240, 144, 96, 72]
    line = found.svg.canvas.axes[0].lines[0]
    assert line.get_xdata()[[0, -1]] == pytest.approx([16, 128])
    expected = [SMALLEST * (1 + CRITICAL / batch) for batch in line.get_xdata()]
    assert line.get_ydata() == pytest.approx(expected, rel=1e-4)
    assert "Lines" not in drawn(*map(run, BATCHES[:2])).caption


def test_several_techniques_share_a_panel_and_workloads_do_not() -> None:
    items = [run(batch, **one) for one in ({}, {"name": "lamb"}, {"model": "resnet_mini"})
             for batch in BATCHES[:2]]  # fmt: skip
    panels = drawn(*items).data.groupby("panel")["technique_label"].nunique()
    assert panels.to_dict() == {"cnn": 2, "resnet_mini": 1}
