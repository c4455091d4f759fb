"""What a setting that a sweep varies does, with everything else equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from analysis.topics import axes
from analysis.topics.settings import value_text
from analysis.topics.topic import Sweep
from tests.analysis.builders import config, record, technique
from tests.analysis.planned import sweep
from train.config.optimizer import Sgd
from train.record.run import RunRecord, Sharpness

MINI: dict[str, Any] = {"epochs": 2, "model": "resnet_mini", "dataset": "cifar10"}
PAIR: dict[str, Any] = {"epochs": 2, "gpus": 2}


def runs(accuracy: float, sharpness: float | None = None, **changes: object) -> list[RunRecord]:
    """Three runs of a condition, on both sides of its mean."""
    sharp = {"images": 64, "largest_error": 0.1, "scaled": 1.0, "scaled_error": 0.1}
    return [
        record(
            config(seed=seed, **changes),
            accuracies=[0.1, accuracy + by],
            sharpness=None
            if sharpness is None
            else Sharpness(largest=sharpness * (1 + by), **sharp),
        )
        for seed, by in enumerate((-0.01, 0.0, 0.01))
    ]


def decayed(
    accuracy: float, decay: float, rate: float = 0.1, momentum: float = 0.0, **changes: object
) -> list[RunRecord]:
    of = technique(base_lr=rate, optimizer=Sgd(weight_decay=decay, momentum=momentum))
    return runs(accuracy, technique=of, **{"epochs": 2, **changes})


def diverged(one: RunRecord) -> RunRecord:
    return record(one.config, status="diverged", accuracies=[0.1, None])


def of(*conditions: Sequence[RunRecord], lost: Sequence[RunRecord] = ()) -> Sweep:
    """``lost``: cells without a usable record."""
    items = [one for own in conditions for one in own]
    return sweep(items, lost=[one.config for one in lost])


def said(*conditions: Sequence[RunRecord], lost: Sequence[RunRecord] = ()) -> dict[str, str]:
    """Question -> answer."""
    return {a.question: a.text for a in axes.answers(of(*conditions, lost=lost))}


@pytest.mark.parametrize(("name", "values", "words", "text"), [
    ("width", (0.25, 1.0, 2.0), "width", "0.25 to 2, validation accuracy changes from 0.400 to "
     "0.600, by +0.200 ("),
    ("data_fraction", (0.25, 0.5, 1.0), "the share of the training images", "0.25 to 1, "),
    ("shortcuts", (True, False), "shortcuts", "on to off, validation accuracy changes from 0.400"),
])  # fmt: skip
def test_a_sweep_is_answered_on_the_axis_that_it_varies(
    name: str, values: Sequence[object], words: str, text: str
) -> None:
    found = of(*(runs(0.4 + at / 10, **MINI, **{name: one}) for at, one in enumerate(values)))
    (answer,) = axes.answers(found)
    assert answer.question == f"What changes with {words}?"
    assert answer.text.startswith(f"From {words} {text}")
    assert (axes.figure(found) is not None) == (name != "shortcuts")  # numbers are drawn


def test_sharpness_is_a_ratio() -> None:
    (text,) = said(runs(0.5, 10.0, width=1.0, **MINI), runs(0.5, 40.0, width=2.0, **MINI)).values()
    assert "eigenvalue of the Hessian changes from 10.0 to 40.0, by a factor of 4.00 (" in text
    assert "no change of validation accuracy is shown: from 0.500 to 0.500, by +0.000" in text


def test_what_follows_from_an_axis_is_named_and_is_no_axis() -> None:
    (text,) = said(runs(0.4, epochs=2, data_fraction=0.5), runs(0.6, epochs=3)).values()
    assert "(with " in text and "changing)" in text


def test_of_names_which_have_no_order_the_range_is_told() -> None:
    orders = ("partition", "independent", "same")
    assert said(*(runs(0.4 + n / 10, **PAIR, partition=one) for n, one in enumerate(orders))) == {
        "What changes with partition?": "Of 3 values of partition, the mean accuracy is 0.400 to "
        "0.600, not tested against each other."
    }


def test_one_run_each_claims_nothing() -> None:
    (text,) = said(*(runs(a, width=w, **MINI)[:1] for a, w in ((0.4, 0.5), (0.7, 1.0)))).values()
    assert "no change of validation accuracy is shown: from 0.390 to 0.690, by +" in text


def test_ranks_batch_technique_and_rate_are_no_axes() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"gpus": 2}, {"batch_per_rank": 32}, {"technique": technique("lamb")},
        {"technique": technique(base_lr=0.2)},
    ]  # fmt: skip
    found = of(*(runs(0.4, epochs=2, **one) for one in changes))
    assert not [*axes.answers(found)] and not axes.TOPIC.asks(found)


def test_runs_that_end_at_a_target_or_diverge_claim_no_accuracy() -> None:
    narrow, wide = (runs(a, s, width=w, **MINI) for a, s, w in ((0.4, 10, 1.0), (0.7, 40, 2.0)))
    frames = of(narrow, wide).frames
    for table in (frames.planned, frames.runs):
        table["target"] = "validation 0.3"
    (ended,) = axes.answers(Sweep(frames))
    assert "from 10.0 to 40.0, by a factor of 4.00" in ended.text and "accuracy" not in ended.text
    frames.planned["width"] = frames.planned["width"].astype(object).replace({1.0: "one"})
    frames.planned.loc[0, "width"] = "some"
    (names,) = axes.answers(Sweep(frames))
    assert names.text.startswith("Of 3 values of width, the mean sharpness is ")
    frames.runs["sharpness_largest"] = pd.NA
    assert not [*axes.answers(Sweep(frames))]
    assert said(narrow, [diverged(wide[0]), *wide[1:]]) == {
        "What changes with width?": "From width 1 to 2, 1 of 6 runs diverged: no change is claimed."
    }


def test_sets_with_ends_of_their_own_say_them() -> None:
    """Numbers that end elsewhere, and names of which one set has too many for two ends."""
    text = said(
        *(decayed(0.5 - d, d) for d in (0.0, 0.001)),
        *(decayed(0.5 - d, d, batch_per_rank=32) for d in (0.0, 0.001, 0.01)),
    )["What changes with weight decay?"]
    assert text.startswith("From weight decay 0 to 0.001, with batch 16, ")
    assert ". From weight decay 0 to 0.01, with batch 32, " in text
    text = said(
        *(runs(0.5, partition=name, **PAIR) for name in ("partition", "independent", "same")),
        *(runs(0.5, partition=name, batch_per_rank=32, **PAIR) for name in ("partition", "same")),
    )["What changes with partition?"]
    assert text.startswith("Of 3 values of partition, with batch 32, ")
    assert "From partition partition to same, with batch 64, " in text


def test_the_rate_is_equal_or_named() -> None:
    (text,) = said(decayed(0.7, 0.0, 0.1), decayed(0.5, 0.001, 0.02)).values()
    assert text.startswith("From weight decay 0 to 0.001 (with base learning rate changing), ")
    crossed = [decayed(0.5 + by, by / 100, rate) for by in (0.0, 0.1) for rate in (0.1, 0.02)]
    (text,) = said(*crossed).values()
    assert "with base learning rate 0.1, validation accuracy changes" in text
    assert text.count("3 + 3 runs") == 2
    assert not said(decayed(0.5, 0.0, 0.1), decayed(0.5, 0.0, 0.02), decayed(0.5, 0.001, 0.05))


def test_what_changes_elsewhere_only_is_not_said_to_change() -> None:
    """Rates of another technique, and a setting in which techniques differ; whose change it is."""
    searched = [
        runs(0.5, technique=technique("lamb", base_lr=rate), width=2.0, **MINI)
        for rate in (0.1, 0.2)
    ]
    (text,) = said(*(decayed(0.5, d, **MINI) for d in (0.0, 0.001, 0.01)), *searched).values()
    assert text.startswith("From weight decay 0 to 0.01, with naive, no change")


def test_a_setting_that_is_left_out_is_a_value() -> None:
    (text,) = said(runs(0.7, epochs=2), runs(0.3, epochs=2, steps_per_epoch=5)).values()
    assert text.startswith("From images an epoch none to 80, validation accuracy changes")
    steps: list[dict[str, Any]] = [{}, {"steps_per_epoch": 5}]
    frames = of(*(decayed(0.5, d, **one) for d in (0.0, 0.001) for one in steps)).frames
    for name in ("epoch_images", "target", "pretrained"):
        given = frames.planned["epoch_images"].notna()
        planned = frames.planned.assign(epoch_images=pd.NA)
        planned[name] = planned[name].mask(given, 80 if name == "epoch_images" else "one")
        rows = axes.table(Sweep(replace(frames, planned=planned))).data
        assert rows.loc[rows["axis"] == "weight decay", "n"].tolist() == [3, 3, 3, 3], name


@pytest.mark.parametrize("place", [0, 2])
def test_an_end_without_runs_is_not_replaced_by_another(place: int) -> None:
    decays = (0.0, 0.001, 0.01)
    conditions = [decayed(0.5 + n / 10, decay) for n, decay in enumerate(decays)]
    lost = conditions.pop(place)
    (text,) = said(*conditions, lost=lost).values()
    value = f"{decays[place]:g}"
    assert text == (
        f"From weight decay 0 to 0.01, no change is claimed; no completed run with {value}."
    )


def test_a_name_or_a_value_in_between_without_runs_is_said() -> None:
    names = [runs(0.5, partition=n, **PAIR) for n in ("partition", "independent", "whole", "same")]
    (text,) = said(*names[:3], lost=names[3]).values()
    assert text.startswith("Of 4 values of partition, the mean")
    assert text.endswith("; no completed run with same.")
    between = of(decayed(0.5, 0.0), decayed(0.7, 0.01), lost=decayed(0.5, 0.001))
    (answer,) = axes.answers(between)
    assert "by +0.200" in answer.text and answer.text.endswith("; no completed run with 0.001.")
    assert axes.figure(between) is not None


def test_values_are_told_apart_and_written_out() -> None:
    close = [decayed(0.5, d, momentum=m) for d in (0.0, 0.001) for m in (0.9, 0.90001)]
    text = said(*close)["What changes with weight decay?"]
    assert text.count("3 + 3 runs") == 2 and "with momentum 0.90001, " in text
    written = {16384: "16,384", 12345.0: "12,345", 0.98304: "0.98304", 5e-05: "5e-05", "a": "a"}
    assert [value_text(value) for value in written] == [*written.values()]


def test_several_intervals_are_said_to_be_uncorrected() -> None:
    one = [decayed(0.5, 0.0), decayed(0.4, 0.001)]
    (text,) = said(*one).values()
    assert "correct" not in text
    (text,) = said(*one, *(decayed(0.5, d, batch_per_rank=32) for d in (0.0, 0.001))).values()
    assert text.endswith(". Intervals are not corrected for 2 comparisons.")
    sharp = [runs(0.5, 10.0 * width, width=width, **MINI) for width in (1.0, 2.0)]
    (text,) = said(*sharp).values()
    assert text.endswith(". Intervals are not corrected for 2 comparisons.")
    narrow, wide = (
        [runs(0.5, 10.0 * width, width=width, batch_per_rank=b, **MINI) for b in (16, 32)]
        for width in (1.0, 2.0)
    )
    (text,) = said(*narrow, *([diverged(one), *others] for one, *others in wide)).values()
    assert text.count("no change is claimed") == 2 and "correct" not in text
