"""Rows carry what the records say, no more; names tell apart what must not be pooled."""

from __future__ import annotations

from datetime import timedelta

import pandas as pd
import pytest

from analysis.records.columns import RUNS
from analysis.records.frames import in_order
from tests.analysis.builders import (
    REASON,
    START,
    classification,
    config,
    epochs_frame,
    frames_of_records,
    rank_steps,
    record,
    runs_frame,
    spread,
    technique,
)
from tests.analysis.samples import NOISE
from train.config.run import Target
from train.config.schedule import Grow
from train.record.run import Attempt


def row(item, **extra):
    return runs_frame([item]).iloc[0].to_dict() | extra


def test_a_run_is_one_row_with_sums_and_final_values() -> None:
    found = row(record(config(gpus=2), accuracies=[0.9, 0.3, 0.6], wall_s=42.0))
    assert found["steps"] == 30  # 320 images / (2 x 16) x 3 epochs
    assert found["images"] == 960
    assert found["train_s"] == pytest.approx(3 * 320 / 100)  # 3 epochs at 100 images/s
    assert found["eval_s"] == 1.5
    assert found["end_to_end_s"] == 42.0
    assert found["validation_accuracy"] == 0.6, "the final epoch, not the best"
    assert found["train_loss"] == 2.0 / 3
    assert found["hosts"] == ("node1",)
    nowhere = row(record(world_changes={"hostnames": ()}))
    assert nowhere["hosts"] == () and pd.isna(nowhere["first_host"])


def test_a_null_is_na_with_the_reason_of_the_record() -> None:
    found = row(record(accuracies=[None] * 3, images_per_s=None, steps=None))
    for name in ("validation_accuracy", "images_per_s"):
        assert pd.isna(found[name]), name
    for name in ("validation_accuracy_why", "images_per_s_why"):
        assert found[name] == REASON


def test_random_labels_have_no_accuracy_whatever_a_record_says() -> None:
    items = [record(config(dataset="synthetic")),
             record(config(dataset="synthetic", seed=1), status="diverged")]  # fmt: skip
    runs = runs_frame(items)
    for name in ("train_accuracy", "validation_accuracy"):
        assert runs[name].isna().all(), name
    assert "random labels" in runs["validation_accuracy_why"][1]
    assert epochs_frame(items)["validation_accuracy"].isna().all()


GOAL = Target(train_accuracy=0.75, validation_accuracy=0.25, held_for=1, within_s=240)


@pytest.mark.parametrize(
    ("changes", "contexts"),
    [
        ([{"seed": 0}, {"seed": 1}], [(), ()]),
        ([{"epochs": 3}, {"epochs": 4}], [("3 epochs",), ("4 epochs",)]),
        # its batch tells the accumulation
        ([{}, {"framework": "mirrored"}, {"accumulation": 2}, {"target": GOAL}],
         [("horovod",), ("mirrored",), ("horovod",),
          ("horovod", "target training accuracy 0.75 and validation accuracy 0.25 within 240 s")]),
        # ranks and batch leave a choice of it
        ([{"gpus": 2, "batch_per_rank": 32}, {"gpus": 2, "batch_per_rank": 16, "accumulation": 2}],
         [(), ("accumulation 2",)]),
    ],
)  # fmt: skip
def test_context_names_only_what_varies(changes, contexts) -> None:
    found = runs_frame([record(config(**change), target=None) for change in changes])
    assert found["context"].tolist() == contexts


def test_only_the_seed_is_pooled() -> None:
    """And what changes no number: weights are often kept of one seed."""
    alike = runs_frame([record(config(seed=s, keep_weights=s > 0)) for s in (0, 1)])
    assert alike["condition"].nunique() == 1
    changes = [
        {"gpus": 2}, {"epochs": 4}, {"data_fraction": 0.5}, {"batch_per_rank": 8},
        {"partition": "whole"}, {"technique": technique("naive", base_lr=1)},
        {"framework": "mirrored"}, {"accumulation": 2}, {"target": Target(train_accuracy=0.5)},
    ]  # fmt: skip
    for change in changes:
        mixed = runs_frame([record(config()), record(config(seed=1, **change))])
        assert mixed["condition"].nunique() == 2, change


def test_an_epoch_is_a_row_with_its_own_batch_and_noise() -> None:
    grows = technique("naive", batch_growth=Grow(milestones=(0.5,), factor=2, largest=160))
    changes = [{"accumulation": a, "skipped_steps": a} for a in (1, 2, 2)]
    changes[2]["noise"] = NOISE
    items = [record(config(technique=grows, seed=seed), epoch_changes=changes,
                    accuracies=[0.1, 0.2, 0.3]) for seed in (0, 1)]  # fmt: skip
    runs, found = runs_frame(items), epochs_frame(items)
    assert found["cell_id"].tolist() == [item.cell_id for item in items for _ in range(3)]
    assert found["seed"].tolist() == [0] * 3 + [1] * 3
    expected = {
        "epoch": [1, 2, 3], "validation_accuracy": [0.1, 0.2, 0.3], "global_batch": [16] * 3,
        "epoch_batch": [16, 32, 32], "skipped_steps": [1, 2, 2], "steady": [False, True, True],
    }  # fmt: skip
    for name, values in expected.items():
        assert found[name].tolist() == values * 2, name
    assert found["noise_b_simple"].notna().tolist() == [False, False, True] * 2
    assert found["noise_censored"].dropna().tolist() == [False, False]
    assert (runs["global_batch"][0], runs["global_batch_last"][0]) == (16, 32)


def test_order_is_that_of_the_manifest_then_ranks() -> None:
    rows = [{"technique": t, "gpus": g} for t, g in
            (("z", 1), ("a", 4), ("a", 2), ("unknown", 1))]  # fmt: skip
    table = pd.DataFrame(rows).astype({"technique": "string", "gpus": "Int64"})
    ordered = in_order(table, ["z", "a"])
    assert list(zip(ordered["technique"], ordered["gpus"], strict=True)) == [
        ("z", 1), ("a", 2), ("a", 4), ("unknown", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("name", [c.name for c in RUNS if c.path and c.name != "global_batch"])
def test_a_column_with_a_path_is_what_the_record_has_there(name: str) -> None:
    """So a number that records have becomes a column by its line in columns.py alone."""
    items = [record(config(gpus=2)), record(epoch_changes={"lr_mean": None}, gradient_bytes=7)]
    (path,) = (column.path.split(".") for column in RUNS if column.name == name)
    for item, found in zip(items, runs_frame(items)[name], strict=True):
        expected = item.model_dump()
        for part in path:
            if expected is not None:
                expected = expected[-1] if part == "last" else expected[part]
        assert found == expected or (expected is None and pd.isna(found))


def sampled(rank: int, **changes):
    parts = {"update_s": spread(0.05), "sampled": 9, "exposed_s": 0.1 * (rank + 1),
             "waiting_s": spread(0.02), "negotiation_s": spread(0.001)}  # fmt: skip
    return rank_steps(rank, 1.0 + rank, 0.1, 0.4).model_copy(update={**parts, **changes})


def test_parts_of_a_step_are_means_over_ranks() -> None:
    found = row(record(config(gpus=2), steps=(sampled(0), sampled(1))))
    assert (found["step_s"], found["input_s"], found["compute_s"]) == (1.5, 0.1, 1.0)
    assert found["compute_fastest_s"] == 0.5, "of rank 0"
    assert found["exposed_s"] == pytest.approx(0.15)
    assert (found["update_s"], found["waiting_s"], found["negotiation_s"]) == (0.05, 0.02, 0.001)
    assert pd.isna(found["step_parts_why"])


def test_parts_that_a_record_does_not_have_are_null_with_the_reason() -> None:
    short = sampled(1, exposed_s=None)
    found = row(record(steps=(sampled(0), short), missing={"steps.exposed_s": "too short"}))
    assert pd.isna(found["exposed_s"]) and found["waiting_s"] == 0.02
    assert found["step_parts_why"] == "too short"
    older = row(record(steps=(rank_steps(0),)))
    assert older["step_s"] == 1.0 and pd.isna(older["update_s"])
    assert older["exposed_s"] == 0.2, "nothing overlapped it"
    assert older["step_parts_why"] == "older records do not have all parts"
    none = row(record(steps=None, missing={"steps": "one step"}))
    assert pd.isna(none["step_s"]) and none["step_parts_why"] == "one step"


def test_gaps_between_attempts_are_not_its_time() -> None:
    ends = [(0, 10), (25, 40), (40, 50)]
    attempts = tuple(
        Attempt(number=n, resumed_from_epoch=0, status="completed",
                started_at=START + timedelta(seconds=a), ended_at=START + timedelta(seconds=b))
        for n, (a, b) in enumerate(ends, start=1)
    )  # fmt: skip
    assert row(record(attempts=attempts))["end_to_end_s"] == 35.0


def test_a_workload_is_data_model_and_epochs_but_not_the_library() -> None:
    changes = ({}, {"epochs": 4}, {"data_fraction": 0.5}, {"framework": "mirrored"}, {"gpus": 2})
    runs = runs_frame([record(config(**change)) for change in changes])
    first, epochs, data, library, ranks = runs["workload"]
    assert len({first, epochs, data}) == 3 and first == library == ranks


@pytest.mark.parametrize("column", ["technique_label", "context"])
def test_rows_are_ordered_by_the_numbers_in_their_names(column: str) -> None:
    names = ["sgd (base_lr=5e-05)", "sgd (base_lr=0.002)", "sgd (base_lr=0.1)",
             "sgd (base_lr=4)", "sgd (base_lr=16)", "sgd (base_lr=1,024)"]  # fmt: skip
    table = pd.DataFrame({"technique": "sgd", "technique_label": "sgd", "context": ""},
                         index=range(6)).astype("string")  # fmt: skip
    table[column] = pd.array(names[::-1], dtype="string")
    assert in_order(table, ["sgd"])[column].tolist() == names


def test_a_class_of_a_run_is_one_row_and_a_score_without_a_value_has_its_reason() -> None:
    """Scores worked out by hand; no bee is predicted in the second run."""
    names = ("ant", "bee", "<cat>")
    first, second = (
        record(config(seed=seed), classification=classification(confusion, names))
        for seed, confusion in enumerate(
            ([[6, 2, 0], [1, 3, 0], [4, 0, 4]], [[8, 0, 0], [4, 0, 0], [0, 0, 8]])
        )
    )
    found = frames_of_records([first, second])["classes"]
    assert found["class"].tolist() == [*names] * 2 and found["epoch"].tolist() == [3] * 6
    assert found["support"].tolist() == [8, 4, 8] * 2
    assert found["precision"][:3].tolist() == [6 / 11, 3 / 5, 1.0]
    assert found["recall"][:3].tolist() == [6 / 8, 3 / 4, 4 / 8]
    assert found["precision"][4] is pd.NA
    assert found["precision_why"].fillna("").tolist() == ["", "", "", "", REASON, ""]
