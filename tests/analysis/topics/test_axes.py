"""What a setting that a sweep varies does, with everything else equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.page.report import Report, build
from analysis.records.load import load_frames
from analysis.topics import axes
from analysis.topics.settings import value_text
from analysis.topics.topic import Sweep
from tests.analysis.builders import config, failed, record, technique, write_sweep
from train.config.optimizer import Sgd
from train.record.run import RunRecord, Sharpness

MINI: dict[str, Any] = {"epochs": 2, "model": "resnet_mini", "dataset": "cifar10"}


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


def lost(conditions: Sequence[RunRecord]) -> list[RunRecord]:
    return [failed(one.config) for one in conditions]


def report(folder: Path, *conditions: Sequence[RunRecord], draw: bool = False) -> Report:
    items = [one for own in conditions for one in own]
    return build(load_frames(write_sweep(folder / "s", items)), draw=draw)


def said(found: Report) -> dict[str, str]:
    return {a.question: a.text for a in found.answers if a.evidence == "axes"}


@pytest.mark.parametrize(("name", "values", "words", "text"), [
    ("width", (0.25, 1.0, 2.0), "width", "0.25 to 2, validation accuracy changes from 0.400 to "
     "0.600, by +0.200 ("),
    ("data_fraction", (0.25, 0.5, 1.0), "the share of the training images", "0.25 to 1, "),
    ("shortcuts", (True, False), "shortcuts", "on to off, validation accuracy changes from 0.400"),
])  # fmt: skip
def test_a_sweep_is_answered_on_the_axis_that_it_varies(
    tmp_path: Path, name: str, values: Sequence[object], words: str, text: str
) -> None:
    conditions = [
        runs(0.4 + place / 10, **MINI, **{name: value}) for place, value in enumerate(values)
    ]
    found = report(tmp_path, *conditions, draw=True)
    assert said(found)[f"What changes with {words}?"].startswith(f"From {words} {text}")
    assert not any(topic.failures for topic in found.topics)
    drawn = [f.key for topic in found.topics for f in topic.figures]
    assert ("axes" in drawn) == (name != "shortcuts")  # numbers are drawn


def test_sharpness_is_a_ratio(tmp_path: Path) -> None:
    found = report(tmp_path, runs(0.5, 10.0, width=1.0, **MINI), runs(0.5, 40.0, width=2.0, **MINI))
    text = said(found)["What changes with width?"]
    assert "eigenvalue of the Hessian changes from 10.0 to 40.0, by a factor of 4.00 (" in text
    assert "no change of validation accuracy is shown: 0.500 to 0.500, by +0.000" in text


def test_what_follows_from_an_axis_is_named_and_is_no_axis(tmp_path: Path) -> None:
    found = report(
        tmp_path,
        runs(0.4, epochs=2, data_fraction=0.5),
        [record(one.config.model_copy(update={"seed": n}), accuracies=[0.1, 0.5, 0.6 + n / 100])
         for n, one in enumerate([record(config(epochs=3))] * 3)],
    )  # fmt: skip
    (text,) = said(found).values()
    assert "(with " in text and "changing)" in text


def test_of_names_which_have_no_order_the_range_is_told(tmp_path: Path) -> None:
    orders = ("partition", "independent", "same")
    names = report(
        tmp_path,
        *(runs(0.4 + n / 10, epochs=2, gpus=2, partition=name) for n, name in enumerate(orders)),
    )
    text = said(names)["What changes with partition?"]
    assert text == (
        "Of 3 values of partition, the mean accuracy is 0.400 to 0.600: no test compares them."
    )


def test_one_run_each_claims_nothing(tmp_path: Path) -> None:
    text = said(
        report(tmp_path, *(runs(a, width=w, **MINI)[:1] for a, w in ((0.4, 0.5), (0.7, 1.0))))
    )
    assert "no change of validation accuracy is shown: 0.390 to 0.690, by +" in str(text)


def test_ranks_batch_technique_and_rate_are_no_axes(tmp_path: Path) -> None:
    faster = technique(base_lr=0.2)
    found = report(
        tmp_path,
        runs(0.4, epochs=2),
        runs(0.5, epochs=2, gpus=2),
        runs(0.5, epochs=2, batch_per_rank=32),
        runs(0.6, epochs=2, technique=technique("lamb")),
        runs(0.6, epochs=2, technique=faster),
    )
    assert said(found) == {} and "axes" not in [t.key for t in found.topics]


def test_runs_that_end_at_a_target_or_diverge_claim_no_accuracy(tmp_path: Path) -> None:
    sharp = [*runs(0.4, 10.0, width=1.0, **MINI), *runs(0.7, 40.0, width=2.0, **MINI)]
    frames = load_frames(write_sweep(tmp_path / "a", sharp))
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
    wide = runs(0.7, width=2.0, **MINI)
    wide[0] = record(wide[0].config, status="diverged", accuracies=[0.1, None])
    text = said(report(tmp_path / "b", runs(0.4, width=1.0, **MINI), wide))[
        "What changes with width?"
    ]
    assert text == "From width 1 to 2, 1 of 6 runs diverged: no change is claimed."


def test_sets_with_ends_of_their_own_say_them(tmp_path: Path) -> None:
    """Numbers that end elsewhere, and names of which one set has too many for two ends."""
    of = {"epochs": 2, "gpus": 2}
    found = report(
        tmp_path,
        decayed(0.5, 0.0),
        decayed(0.4, 0.001),
        decayed(0.5, 0.0, batch_per_rank=32),
        decayed(0.45, 0.001, batch_per_rank=32),
        decayed(0.3, 0.01, batch_per_rank=32),
        *(runs(0.5, partition=name, **of) for name in ("partition", "independent", "same")),
        *(
            runs(accuracy, partition=name, batch_per_rank=32, **of)
            for name, accuracy in (("partition", 0.6), ("same", 0.4))
        ),
    )
    text = said(found)["What changes with weight decay?"]
    assert text.startswith("From weight decay 0 to 0.001, with 1 rank, batch 16, ")
    assert ". From weight decay 0 to 0.01, with 1 rank, batch 32, " in text
    text = said(found)["What changes with partition?"]
    assert text.startswith("Of 3 values of partition, with ")
    assert text.endswith(" comparisons.")
    assert "From partition partition to same, with 2 ranks, batch 64, " in text


def test_the_rate_is_equal_or_named(tmp_path: Path) -> None:
    follows = report(tmp_path / "a", decayed(0.7, 0.0, 0.1), decayed(0.5, 0.001, 0.02))
    (text,) = said(follows).values()
    assert text.startswith("From weight decay 0 to 0.001 (with base learning rate changing), ")
    crossed = [decayed(0.5 + by, by / 100, rate) for by in (0.0, 0.1) for rate in (0.1, 0.02)]
    (text,) = said(report(tmp_path / "b", *crossed)).values()
    assert "with base learning rate 0.1, validation accuracy changes" in text
    assert text.count("3 + 3 runs") == 2
    alone = [decayed(0.5, 0.0, 0.1), decayed(0.5, 0.0, 0.02), decayed(0.5, 0.001, 0.05)]
    assert not said(report(tmp_path / "c", *alone))


def test_what_changes_elsewhere_only_is_not_said_to_change(tmp_path: Path) -> None:
    """Rates of another technique, and a setting in which techniques differ; whose change it is."""
    searched = [
        runs(0.5, technique=technique("lamb", base_lr=rate), width=2.0, **MINI)
        for rate in (0.1, 0.2)
    ]
    found = report(tmp_path, *(decayed(0.5, d, **MINI) for d in (0.0, 0.001, 0.01)), *searched)
    (text,) = said(found).values()
    assert text.startswith("From weight decay 0 to 0.01, with naive, no change")


def test_a_setting_that_is_left_out_is_a_value(tmp_path: Path) -> None:
    steps = [runs(0.7, epochs=2), runs(0.3, epochs=2, steps_per_epoch=5)]
    text = said(report(tmp_path / "a", *steps))["What changes with images an epoch?"]
    assert text.startswith("From images an epoch none to 80, validation accuracy changes")
    crossed = [decayed(0.5, d, **of) for d in (0.0, 0.001) for of in ({}, {"steps_per_epoch": 5})]
    frames = load_frames(write_sweep(tmp_path / "b", [one for own in crossed for one in own]))
    for name in ("epoch_images", "target", "pretrained"):
        given = frames.planned["epoch_images"].notna()
        planned = frames.planned.assign(epoch_images=pd.NA)
        planned[name] = planned[name].mask(given, 80 if name == "epoch_images" else "one")
        rows = axes.table(Sweep(replace(frames, planned=planned))).data
        assert rows.loc[rows["axis"] == "weight decay", "n"].tolist() == [3, 3, 3, 3], name


@pytest.mark.parametrize("place", [0, 2])
def test_an_end_without_runs_is_not_replaced_by_another(tmp_path: Path, place: int) -> None:
    decays = (0.0, 0.001, 0.01)
    conditions = [decayed(0.5 + n / 10, decay) for n, decay in enumerate(decays)]
    conditions[place] = lost(conditions[place])
    (text,) = said(report(tmp_path, *conditions)).values()
    value = f"{decays[place]:g}"
    assert text == (
        f"From weight decay 0 to 0.01, no change is claimed; no completed run with {value}."
    )


def test_a_name_or_a_value_in_between_without_runs_is_said(tmp_path: Path) -> None:
    of = {"epochs": 2, "gpus": 2}
    names = [
        runs(0.5, partition=name, **of) for name in ("partition", "independent", "whole", "same")
    ]
    (text,) = said(report(tmp_path / "a", *names[:3], lost(names[3]))).values()
    assert text.startswith("Of 4 values of partition, the mean")
    assert text.endswith("; no completed run with same.")
    between = [decayed(0.5, 0.0), lost(decayed(0.5, 0.001)), decayed(0.7, 0.01)]
    found = report(tmp_path / "b", *between, draw=True)
    (text,) = said(found).values()
    assert "by +0.200" in text and text.endswith("; no completed run with 0.001.")
    assert not any(topic.failures for topic in found.topics)


def test_values_are_told_apart_and_written_out(tmp_path: Path) -> None:
    close = [decayed(0.5, d, momentum=m) for d in (0.0, 0.001) for m in (0.9, 0.90001)]
    text = said(report(tmp_path / "a", *close))["What changes with weight decay?"]
    assert text.count("3 + 3 runs") == 2 and "with momentum 0.90001, " in text
    written = {16384: "16,384", 12345.0: "12,345", 0.98304: "0.98304", 5e-05: "5e-05", "a": "a"}
    assert [value_text(value) for value in written] == [*written.values()]


def test_several_intervals_are_said_to_be_uncorrected(tmp_path: Path) -> None:
    one = [decayed(0.5, 0.0), decayed(0.4, 0.001)]
    (text,) = said(report(tmp_path / "a", *one)).values()
    assert "correct" not in text
    two = [*one, *(decayed(0.5, d, batch_per_rank=32) for d in (0.0, 0.001))]
    (text,) = said(report(tmp_path / "b", *two)).values()
    assert text.endswith(". Intervals are not corrected for 2 comparisons.")
    both = [runs(0.5, 10.0 * width, width=width, **MINI) for width in (1.0, 2.0)]
    (text,) = said(report(tmp_path / "c", *both)).values()
    assert text.endswith(". Intervals are not corrected for 2 comparisons.")
    items = []
    for batch in (16, 32):
        slim, wide = (runs(0.5, 10.0 * width, width=width, batch_per_rank=batch, **MINI)
                      for width in (1.0, 2.0))  # fmt: skip
        gone = record(wide[0].config, status="diverged", accuracies=[0.1, None])
        items += [*slim, gone, *wide[1:]]
    text = said(report(tmp_path / "d", items))["What changes with width?"]
    assert text.count("no change is claimed") == 2 and "correct" not in text
