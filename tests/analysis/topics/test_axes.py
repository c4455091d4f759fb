"""What a setting that a sweep varies does, with everything else equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from analysis.topics import axes
from analysis.topics.settings import value_text
from analysis.topics.topic import Answer, Sweep
from tests.analysis.builders import config, record, technique
from tests.analysis.planned import sweep
from train.config.optimizer import Sgd
from train.record.measurements import Sharpness
from train.record.run import RunRecord

MINI: dict[str, Any] = {"epochs": 2, "model": "resnet_mini", "dataset": "cifar10"}
DECAYS = (0.0, 0.001, 0.01)


def runs(accuracy: float, sharpness: float | None = None, **changes: object) -> list[RunRecord]:
    """Three runs of a condition, on both sides of its mean."""
    sharp = {"images": 64, "largest_error": 0.1, "scaled": 1.0, "scaled_error": 0.1}
    return [
        record(
            config(seed=seed, **{"epochs": 2, **changes}), accuracies=[0.1, accuracy + by],
            sharpness=None if sharpness is None
            else Sharpness(largest=sharpness * (1 + by), **sharp),
        )
        for seed, by in enumerate((-0.01, 0.0, 0.01))
    ]  # fmt: skip


def decayed(
    accuracy: float, decay: float, rate: float = 0.1, momentum: float = 0.0, **changes: object
) -> list[RunRecord]:
    of = technique(base_lr=rate, optimizer=Sgd(weight_decay=decay, momentum=momentum))
    return runs(accuracy, technique=of, **changes)


def of(*conditions: Sequence[RunRecord], lost: Sequence[RunRecord] = ()) -> Sweep:
    """``lost``: cells without a usable record; of one more, the config cannot be read."""
    items = [one for own in conditions for one in own]
    return sweep(items, lost=[one.config for one in lost], unknown=1)


def only(of: Sweep) -> Answer:
    (answer,) = axes.answers(of)
    return answer


@pytest.mark.parametrize(("name", "values", "words", "text"), [
    ("width", (2.0, 0.25, 1.0), "width", "falls from width 0.25 to 2: -0.100 (-0.129 to -0.0"),
    ("data_fraction", (0.25, 0.5, 1.0), "the share of the training images",
     "rises from 25 % to 100 % of the training images: +0.200 (+0.171 to +0.22"),
    ("shortcuts", (True, False), "shortcuts",
     "rises from shortcuts on to off: +0.100 (+0.077 to +0.123), 3 runs each."),
    ("steps_per_epoch", (None, 5), "images an epoch",
     "rises from images an epoch none to 80: +0.100 (+0.077 to +0.123), 3 runs each."),
])  # fmt: skip
def test_a_sweep_is_answered_on_the_axis_that_it_varies(
    name: str, values: Sequence[object], words: str, text: str
) -> None:
    """Numbers in their order, and drawn; others in that of the plan."""
    found = of(*(runs(0.4 + at / 10, **MINI, **{name: one}) for at, one in enumerate(values)))
    answer = only(found)
    assert answer.question == f"What changes with {words}?"
    assert answer.text.startswith(f"Accuracy {text}")
    assert (axes.figure(found) is not None) == (name in ("width", "data_fraction"))


def test_sharpness_is_a_ratio_and_told_of_batches_too() -> None:
    """Of the same ranks: the runs on two have a batch of their own. Zero has no logarithm."""
    flat, sharp, wide = (
        runs(0.5, 10.0 * by, batch_per_rank=batch, width=width, **MINI)
        for by, batch, width in ((1, 16, 1.0), (4, 64, 1.0), (4, 64, 2.0))
    )
    none = runs(0.5, 0.0, batch_per_rank=32, **MINI)
    found = of(flat, none, sharp, wide, runs(0.5, 1.0, gpus=2, **MINI))
    assert axes.table(found).data["sharpness"].isna().sum() == 1
    answers = [*axes.answers(found)]
    assert [one.question for one in answers] == [
        f"What changes with {axis}?" for axis in ("batch", "width")
    ]
    assert answers[0].text == (
        "The largest eigenvalue of the Hessian rises from batch 16 to 64 with ranks 1, width 1: "
        "4.00 (3.84 to 4.16) times, 3 runs each; accuracy is not shown to change: +0.000 (-0.040 "
        "to +0.040), 3 runs each; 1 more value in the table."
    )
    assert set(axes.table(found).data["family"]) == {6}, "two measures of each against its first"


def test_one_run_each_claims_nothing() -> None:
    text = only(of(*(runs(a, width=w, **MINI)[:1] for a, w in ((0.4, 0.5), (0.7, 1.0))))).text
    assert text == "Accuracy is untested from width 0.5 to 1: +0.300, 1 run each (n=1)."


def test_ranks_batch_technique_and_rate_are_no_axes() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"gpus": 2}, {"batch_per_rank": 32}, {"technique": technique("lamb")},
        {"technique": technique(base_lr=0.2)},
    ]  # fmt: skip
    found = of(*(runs(0.4, **one) for one in changes))
    assert not [*axes.answers(found)] and not axes.TOPIC.asks(found)


def test_runs_that_end_at_a_target_or_diverge_claim_no_accuracy() -> None:
    narrow, wide = (runs(a, s, width=w, **MINI) for a, s, w in ((0.4, 10, 1.0), (0.7, 40, 2.0)))
    frames = of(narrow, wide).frames
    for table in (frames.planned, frames.runs):
        table["target"] = "validation 0.3"
    ended = only(Sweep(frames)).text
    assert "4.00 (3.89 to 4.12) times" in ended and "ccuracy" not in ended
    frames.runs["sharpness_largest"] = pd.NA
    assert not [*axes.answers(Sweep(frames))]
    gone = record(wide[0].config, status="diverged", accuracies=[0.1, 0.9])
    found = of(narrow, [gone, *wide[1:]])
    assert only(found).text.endswith("2 runs against 3 (some runs diverged).")
    assert axes.table(found).data["accuracy"].tolist() == pytest.approx([0.4, 0.705])


def test_each_set_of_equal_cells_has_ends_of_its_own() -> None:
    """Accumulation goes without saying; a momentum in full, which no other set reads like."""
    text = only(of(
        *(decayed(0.5, decay, momentum=0.9) for decay in DECAYS[:2]),
        *(decayed(0.4, decay, momentum=0.90001, accumulation=2) for decay in DECAYS),
    )).text  # fmt: skip
    shown = "Accuracy is not shown to change from weight decay 0 to"
    assert text.startswith(f"{shown} 0.001 with batch 16, momentum 0.9: +0.000 (-0.0")
    assert f". {shown} 0.01 with batch 32, momentum 0.90001: +0.000 (-0.0" in text
    written = {16384: "16,384", 12345.0: "12,345", 0.98304: "0.98304", 5e-05: "5e-05", "a": "a"}
    assert [value_text(value) for value in written] == [*written.values()]


@pytest.mark.parametrize(("conditions", "said"), [
    ([runs(0.4, data_fraction=0.5), runs(0.6, epochs=3)],
     " 50 % to 100 % of the training images: +0.200 (+0.177 to +0.223), 3 runs each; what else "
     "changes: epochs."),
    ([decayed(0.7, 0.0, 0.1), decayed(0.5, 0.001, 0.02)],
     " weight decay 0 to 0.001: -0.200 (-0.223 to -0.177), 3 runs each; what else changes: base "
     "learning rate."),
    ([decayed(0.5 + by, by / 100, rate) for by in (0.0, 0.1) for rate in (0.1, 0.02)],
     " weight decay 0 to 0.001 with base learning rate 0.1: +0.100 (+0.0"),
    # rates of another technique, and a setting in which techniques differ
    ([*(decayed(0.5, decay, **MINI) for decay in DECAYS),
      *(runs(0.5, technique=technique("lamb", base_lr=rate), width=2.0, **MINI)
        for rate in (0.1, 0.2))],
     " weight decay 0 to 0.01 with technique naive: "),
    ([decayed(0.7, 0.0, 0.1), decayed(0.5, 0.001, 0.02),
      *(runs(0.5, technique=technique("lamb", base_lr=rate)) for rate in (0.1, 0.2))],
     " weight decay 0 to 0.001 with technique naive: -0.200 (-0.223 to -0.177), 3 runs each; wh"),
])  # fmt: skip
def test_what_else_changes_is_named_or_equal(conditions: list[list[RunRecord]], said: str) -> None:
    assert f" from{said}" in only(of(*conditions)).text


def test_settings_that_no_cell_has_both_of_are_two_axes() -> None:
    warm = [technique("lamb", warmup_epochs=w, warmup_from="zero") for w in (0.0, 1.0)]
    found = of(*(decayed(0.5, d, epochs=n) for d, n in zip(DECAYS, (2, 4), strict=False)),
               *(runs(0.5, technique=t, epochs=2) for t in warm))  # fmt: skip
    epochs, warm_up = (answer.text for answer in axes.answers(found))
    assert " from epochs 2 to 4 with technique naive" in epochs and "weight decay" in epochs
    assert " from warmup epochs 0 to 1 with technique lamb, epochs 2" in warm_up


def test_a_batch_is_an_axis_though_accumulation_differs_by_ranks() -> None:
    grid = [runs(0.5, 10.0 * gpus * times, gpus=gpus, accumulation=times, **MINI)
            for gpus in (1, 2) for times in (1, 2)]  # fmt: skip
    said = only(of(*grid)).text
    assert " from batch 16 to 32 with ranks 1: 2.00 (1.93 to 2.07) times, 3 runs each; " in said
    assert "; what else changes: accumulation." in said
    lamb = runs(0.5, 9.0, technique=technique("lamb"), accumulation=4, **MINI)
    text = only(of(*(runs(0.5, 9.0, batch_per_rank=size, **MINI) for size in (16, 32)), lamb)).text
    assert "Hessian is not shown to change from batch 16 to 32 with technique naive: " in text


def test_cells_that_differ_in_two_settings_are_not_compared() -> None:
    other = [decayed(0.5, 0.0, 0.1), decayed(0.5, 0.0, 0.02), decayed(0.5, 0.001, 0.05)]
    assert not [*axes.answers(of(*other))]


@pytest.mark.parametrize("name", ["epoch_images", "target", "pretrained"])
def test_a_setting_that_is_left_out_is_a_value(name: str) -> None:
    """Of an axis, and of what must be equal."""
    steps: list[dict[str, Any]] = [{}, {"steps_per_epoch": 5}]
    frames = of(*(decayed(0.5, d, **one) for d in DECAYS[:2] for one in steps)).frames
    given = frames.planned["epoch_images"].notna()
    planned = frames.planned.assign(epoch_images=pd.NA)
    planned[name] = planned[name].mask(given, 80 if name == "epoch_images" else "one")
    rows = axes.table(Sweep(replace(frames, planned=planned))).data
    assert rows.loc[rows["axis"] == "weight decay", "n"].tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("place", [0, 2])
def test_an_end_without_runs_is_not_replaced_by_another(place: int) -> None:
    conditions = [decayed(0.5 + n / 10, decay) for n, decay in enumerate(DECAYS)]
    lost = conditions.pop(place)
    text = "Accuracy is not compared from weight decay 0 to 0.01 (no run with this value); 1 more"
    assert only(of(*conditions, lost=lost)).text.startswith(text)


def test_a_change_that_one_of_several_has_by_chance_is_none() -> None:
    """Five settings were compared; the sentence once counted the three that it had."""
    close = [0.428, 0.436, 0.443]
    alone = [[0.40, 0.41, 0.42], close]
    widths = dict(zip((0.5, 1.0, 2.0, 4.0, 8.0, 16.0), [alone[0], *[alone[0]] * 4, close],
                      strict=True))  # fmt: skip
    several = [
        [record(config(seed=seed, width=width, **MINI), accuracies=[0.1, value])
         for seed, value in enumerate(values)]
        for width, values in widths.items()
    ]  # fmt: skip
    ends = of(several[0], several[-1])
    assert only(ends).text.startswith("Accuracy rises from width 0.5 to 16: +0.026 (+0.0")
    assert only(of(*several)).text.startswith(
        "Accuracy is not shown to change from width 0.5 to 16"
    )


def test_settings_beyond_the_first_three_are_counted() -> None:
    changes: list[dict[str, Any]] = [{}, {"width": 2.0}, {"shortcuts": False}, {"epochs": 4},
                                     {"data_fraction": 0.5}]  # fmt: skip
    items = [runs(0.5, **{**MINI, **one}) for one in changes]
    found = [*axes.answers(of(*items))]
    assert len(found) == 3 and "1 more in the tables." in found[-1].text
