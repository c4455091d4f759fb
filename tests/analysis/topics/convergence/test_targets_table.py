"""Time to target with runs that never got there, by hand; the clock of a run over its starts."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.records.load import load_frames
from analysis.table import Table
from analysis.topics.convergence import targets
from analysis.topics.topic import Sweep
from tests.analysis.builders import (
    cells,
    config,
    epochs_frame,
    failed,
    frames_of_records,
    record,
    write_sweep,
)
from tests.analysis.planned import sweep
from tests.analysis.topics.convergence.to_target import run as to_target
from train.config.run import Target
from train.record.measurements import TargetOutcome
from train.record.run import RunRecord

TARGET = Target(train_accuracy=0.75, validation_accuracy=0.25, within_s=240)


def run(
    seed: int, epoch: int | None, *, name: str = "naive", gpus: int = 1, model: str = "cnn",
    **changes: Any,
) -> RunRecord:  # fmt: skip
    """A run of ten epochs at most, each of 2 s of training and 0.5 s of validation."""
    asked = config(name, seed=seed, gpus=gpus, model=model, epochs=10, target=TARGET)
    made = {"epoch": epoch, "steps": None, "images": None, "seconds": None, "met": False,
            "why": f"seed {seed} was too slow"}  # fmt: skip
    if epoch is not None:
        made |= {"met": True, "steps": 20 * epoch, "images": 320 * epoch, "seconds": 2.5 * epoch,
                 "why": "held"}  # fmt: skip
    fields = {"target": TargetOutcome(**made), "epoch_changes": {"train_s": 2.0},
              "accuracies": [0.4] * (epoch or 10), "throughput": None}  # fmt: skip
    return record(asked, **{**fields, **changes})


def made(*items: RunRecord) -> Table:
    return targets.to_target(sweep(items))


def test_one_row_per_run_with_what_it_took() -> None:
    items = [run(0, 4, accuracies=[0.4] * 6), run(1, None)]  # what came after epoch 4 is not in
    goals = frames_of_records(items)["goals"]
    first, second = (row for _, row in goals.iterrows())
    assert (first["epoch"], first["steps"], first["images"]) == (4, 80, 1280)
    assert (first["seconds"], first["train_s"]) == (10.0, 8.0)
    assert first["target"] == (
        "training accuracy 0.75 and validation accuracy 0.25 (2 evaluations in a row) within 240 s"
    )
    assert not second["met"] and second["why"] == "seed 1 was too slow"
    assert second[["epoch", "steps", "images", "seconds", "train_s"]].isna().all()


#: Of an epoch, on two ranks.
EACH = {"epoch": 1, "steps": 20, "seconds": 2.5, "gpu_hours": 5 / 3600}
INFINITE = "the median is infinite"


@pytest.mark.parametrize(("epochs", "median", "shown", "reached", "note"), [
    ([3, 4], 3.5, "3.50", "2 of 2 (16 to 100 %)", ""),
    # of 3, 5 and infinity; the mean of those that met it would be 4
    ([3, 5, None], 5, "5", "2 of 3 (9 to 99 %)", "seed 2 was too slow"),
    # the upper end of the interval is infinite, which is no bound
    ([3, None, 5, 4, 6, 7], 5.5, "5.50 (3 to ∞)", "5 of 6 (36 to 100 %)", "seed 1 was too slow"),
    ([None, 3, None, 2], None, "n/a", "2 of 4 (7 to 93 %)", "seed 0 was too slow; seed 2 was too"),
    ([3, None], None, "n/a", "1 of 2 (1 to 99 %)", f"not reached by 1 of 2 runs: {INFINITE}"),
])  # fmt: skip
def test_a_run_that_did_not_meet_it_counts_as_infinity(
    epochs: list[int | None], median: float | None, shown: str, reached: str, note: str
) -> None:
    items = [run(seed, epoch, gpus=2) for seed, epoch in enumerate(epochs)]
    table = made(*reversed(items))
    for name, each in EACH.items():
        value = table.data[name].iloc[0]
        assert pd.isna(value) if median is None else value == pytest.approx(median * each)
    found = cells(table)
    assert found["epochs"].startswith(shown) and found["reached"].startswith(reached)
    assert note in found["notes"]


def test_a_diverged_run_did_not_meet_it() -> None:
    gone = run(1, None, status="diverged", target=None, missing={"target": "it diverged first"})
    found = made(run(0, 3), gone).data.iloc[0]
    assert (found["n"], found["reached"]) == (2, 0.5)
    assert found["reached_note"].endswith("it diverged first") and found["epoch"] is pd.NA


def test_the_clock_of_a_run_goes_on_over_its_starts() -> None:
    items = [
        record(config(seed=seed), images_per_s=rate, epoch_changes=[{}, {"attempt": 2}, {}])
        for seed, rate in ((0, 100.0), (1, 50.0))
    ]
    epochs = epochs_frame(items)
    assert epochs["images_per_s"].tolist() == pytest.approx([100.0] * 3 + [50.0] * 3)
    assert epochs["train_s_so_far"].tolist() == pytest.approx([3.2, 6.4, 9.6, 6.4, 12.8, 19.2])
    assert epochs["seconds_so_far"].tolist() == pytest.approx([3.7, 7.4, 11.1, 6.9, 13.8, 20.7])
    none = epochs_frame([record(images_per_s=None, epoch_changes={"train_s": 0.0})])
    assert none["images_per_s"].isna().all()


@pytest.mark.parametrize("how", ["failed", "no record", "broken record"])
def test_a_lost_run_is_censored_at_the_last_time_known_of_it(tmp_path: Path, how: str) -> None:
    """Three runs get there after 2, 3 and 9 epochs; two are lost after 6 and 7 without it. At batch
    32 the median is later than the last time known, 3 epochs, which is no time."""
    kept = [to_target(16, seed, epochs=epochs) for seed, epochs in enumerate((2, 3, 9))]
    ended = [to_target(16, seed, epochs=epochs, met=False) for seed, epochs in ((3, 6), (4, 7))]
    kept.append(to_target(32, epochs=2))
    ended += [to_target(32, seed, epochs=3, met=False) for seed in (1, 2)]
    items = [*kept, *ended]
    folder = write_sweep(tmp_path / "s", items)
    for item in ended:
        cell = folder / item.cell_id
        lines = "".join(f"{epoch.model_dump_json()}\n" for epoch in item.epochs)
        (cell / "epochs.jsonl").write_text(lines)
        if how == "no record":
            (cell / "record.json").unlink()
        elif how == "broken record":
            (cell / "record.json").write_text("{")
        else:
            gone = failed(item.config, status=how).model_copy(update={"epochs": item.epochs})
            (cell / "record.json").write_text(gone.model_dump_json())
    of = Sweep(load_frames(folder))
    found = targets.to_target(of).data.iloc[0]
    assert (found["n"], found["reached_n"]) == (5, 3)
    # at 2 are 4 of 5 left, at 3 are 3 of 5, and at 9 the last one gets there
    assert found["epoch"] == 9, "censored at 0 it would be 3, the median of the others"
    assert found["steps"] == 9 * 16
    assert found["seconds"] == pytest.approx(9 * 3.06)
    assert found["gpu_hours"] == pytest.approx(9 * 3.06 / 3600)
    assert targets.to_target(of).data["pareto_optimal"].isna().all()
    (answer,) = targets.TOPIC.answers[0](of)
    assert "The median is 27.5 s." in answer.text


def test_of_a_lost_run_without_a_trace_nothing_is_known(tmp_path: Path) -> None:
    items = [to_target(16, seed, epochs=epochs) for seed, epochs in enumerate((2, 3, 9))]
    gone = [failed(to_target(16, seed).config) for seed in (3, 4)]
    frames = load_frames(write_sweep(tmp_path / "s", [*items, *gone]))
    assert frames.planned["epochs_run"].tolist() == [2, 3, 9, pd.NA, pd.NA]
    table = targets.to_target(Sweep(frames))
    found = table.data.iloc[0]
    assert (found["n"], found["epoch"]) == (5, 3) and "Kaplan-Meier" in found["epoch_note"]
    assert "2 of 5 runs lost" in found["reached_note"]
    assert cells(table)["reached"].startswith("3 of 3 (29 to 100 %)")


def test_what_is_pareto_optimal_is_marked() -> None:
    """Seconds 10, 5, 5 and 20; rank-hours are ranks times these. Workloads do not compete."""
    items = [
        run(0, 8, name="lamb"),  # 20 s: beaten
        run(0, 4),  # 10 s, 10 rank-seconds
        run(0, 2, gpus=4),  # 5 s, 20 rank-seconds
        run(0, 2, gpus=4, name="lamb"),  # equal rows do not beat each other
        run(0, 2, gpus=8),  # 5 s, 40 rank-seconds: beaten by the row before
        run(0, None, gpus=2),  # no median
        run(0, 1, gpus=2, model="resnet_mini"),  # no other row to beat
    ]
    table = made(*items)
    found = table.data[["technique", "gpus", "pareto_optimal"]].to_numpy(object).tolist()
    assert found == [
        ["naive", 1, True], ["naive", 2, pd.NA], ["naive", 4, True], ["naive", 8, False],
        ["naive", 2, pd.NA], ["lamb", 1, False], ["lamb", 4, True],
    ]  # fmt: skip
    assert "Pareto-optimal" in [column.heading for column in table.shown().columns]


def test_what_is_pareto_optimal_needs_no_table_of_all_pairs() -> None:
    """Seen: 0.4 GB of booleans at 10,000 conditions."""
    count = 2_000
    times = np.arange(count, dtype=float)
    rows = pd.DataFrame({
        "workload": "w", "machine": "m", "seconds": times + 1, "gpu_hours": (times - 900) ** 2,
        "seconds_low": pd.NA, "seconds_high": pd.NA,
    })  # fmt: skip
    tracemalloc.start()
    stands = targets._pareto_optimal(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stands.tolist() == [at <= 900 for at in range(count)]
    assert peak < 2_000_000, "of booleans alone it would be 4 million"


#: Epochs to the target, of 2.5 s and 20 steps each.
SOON, LATE, ALIKE = [2, 3, 2], [8, 9, 9], [2, 3, 4]
GPU = {"world_changes": {"device": "H100", "device_kind": "gpu"}}
SHARED = {"world_changes": {"oversubscribed": True}}


def timed(name: str, epochs: Sequence[int | None], **changes: Any) -> list[RunRecord]:
    return [run(seed, n, name=name, **changes) for seed, n in enumerate(epochs)]


def said(*items: RunRecord, **plan: Any) -> str:
    (answer,) = targets.TOPIC.answers[0](sweep(items, **plan))
    return answer.text


def test_pairs_are_shown_to_differ_by_welch_on_logarithms_and_bonferroni() -> None:
    epochs = {"naive": SOON, "lars": ALIKE, "lamb": LATE}
    ends = []
    for first, second in itertools.combinations(epochs, 2):
        logs = (np.log(epochs[name]) for name in (second, first))
        found = stats.ttest_ind(*logs, equal_var=False)
        ends.append(found.confidence_interval(1 - 0.05 / 3))
    assert [end.low > 0 for end in ends] == [False, True, False]
    text = said(*(item for name, own in epochs.items() for item in timed(name, own)))
    assert text.endswith(
        " Median time: 5 s with naive to 22.5 s with lamb (40 to 180 steps). 1 of 3 pairs is shown "
        "to differ in time."
    )


def test_two_conditions_have_the_ratio_of_their_times() -> None:
    text = said(*timed("naive", SOON), *timed("lamb", LATE))
    found = stats.ttest_ind(np.log(LATE), np.log(SOON), equal_var=False)
    low, high = np.exp(found.confidence_interval(0.95))
    ratio = np.exp(np.log(LATE).mean() - np.log(SOON).mean())
    assert f"The longer takes {ratio:.2f} ({low:.2f} to {high:.2f}) times the shorter." in text


def test_a_condition_with_a_run_that_is_lost_or_never_got_there_is_not_tested() -> None:
    items = [*timed("naive", SOON), *timed("lamb", [8, 9, None]), *timed("lars", LATE[:2])]
    lost = [config("lars", seed=9, epochs=10, target=TARGET)]
    assert " No pair is tested: that needs two runs each" in said(*items, lost=lost)
    more = said(*items, *timed("muon", [18, 19, 19]), lost=lost)
    assert "1 of 1 pair is shown to differ in time; 5 more are not tested." in more


@pytest.mark.parametrize(("other", "why"), [(GPU, "H100"), (SHARED, targets.SHARE_CORES)])
def test_times_are_compared_on_one_machine_without_shared_cores(other: Any, why: str) -> None:
    """Seen: half of the conditions on a GPU, "shown shorter than 4 of 5 others"."""
    items = [*timed("naive", SOON), *timed("lamb", ALIKE), *timed("lars", LATE),
             *timed("muon", [1, 1, 2], **other), *timed("larc", [1, 2, 1], **other)]  # fmt: skip
    text = said(*items)
    assert "Median time: 5 s with naive to 22.5 s with lars" in text
    assert " of 3 pairs" in text and f"Not compared with these: 2 conditions ({why})." in text
    found = made(*items).data.set_index("technique")["pareto_optimal"]
    assert found["naive"] and not found["lars"]
    assert found["muon"] is pd.NA if other is SHARED else found["muon"]


def test_where_no_time_can_be_compared_the_answer_says_why() -> None:
    several = [run(0, 2), run(1, 3, **GPU)]
    assert f"No times are compared: 1 condition ({targets.SEVERAL})." in said(*several)
