"""Names that tell settings of one technique apart."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.records.labels import technique_labels, without_batch
from analysis.records.lists import Context
from analysis.topics.convergence import reached
from tests.analysis.builders import runs_frame
from tests.builders import config, record
from train.config.technique import Technique
from train.record.run import RunRecord


def run(**technique: Any) -> RunRecord:
    of = config()
    settings = of.technique.model_dump() | technique
    return record(of.model_copy(update={"technique": Technique.model_validate(settings)}))


def labels(*records: RunRecord) -> list[str]:
    return list(technique_labels(settings(*records)).values())


def settings(*records: RunRecord) -> dict[str, dict[str, Any]]:
    found = [item.config.technique for item in records]
    return {one.model_dump_json(): one.model_dump(mode="json") for one in found}


def test_one_setting_has_the_name_alone() -> None:
    assert labels(run(), run()) == [run().config.technique.name]


def test_of_two_settings_both_say_what_differs() -> None:
    name = run().config.technique.name
    assert labels(run(base_lr=0.1), run(base_lr=0.2)) == [
        f"{name} (base_lr=0.1)", f"{name} (base_lr=0.2)"
    ]  # fmt: skip


def test_a_search_that_changes_one_thing_at_a_time_names_that_thing() -> None:
    name = run().config.technique.name
    plain = {"name": "as_they_are"}
    moved = {"name": "crop_flip", "crop": 2, "flip": "none", "cutout": 0}
    found = labels(
        run(base_lr=0.1, augmentation=moved),
        run(base_lr=0.2, augmentation=moved),
        run(base_lr=0.1, augmentation=moved, label_smoothing=0.1),
        run(base_lr=0.1, augmentation=plain),
        run(base_lr=0.1, augmentation={**moved, "crop": 4}),
    )
    assert found == [
        name,
        f"{name} (base_lr=0.2)",
        f"{name} (label_smoothing=0.1)",
        f"{name} (augmentation=as_they_are)",
        f"{name} (augmentation.crop=4)",
    ]


def test_the_numbers_of_a_kind_go_without_saying_where_the_kind_is_named() -> None:
    name = run().config.technique.name
    step = {"name": "step", "unit": "epochs", "milestones": [1], "factor": 0.1}
    assert labels(run(schedule={"name": "constant"}), run(schedule=step)) == [
        f"{name} (schedule=constant)", f"{name} (schedule=step)"
    ]  # fmt: skip


def test_numbers_that_two_kinds_have_are_named_where_one_kind_has_two_values() -> None:
    name = run().config.technique.name
    kinds = {kind: {"name": kind} for kind in ("novograd", "novograd_tfa")}
    both = [run(optimizer=kind) for kind in kinds.values()]
    assert labels(*both) == [f"{name} (optimizer={kind})" for kind in kinds]
    other = run(optimizer={**kinds["novograd"], "beta_1": 0.5})
    assert labels(*both, other) == [
        f"{name} (optimizer.beta_1=0.95)",
        f"{name} (optimizer=novograd_tfa, optimizer.beta_1=0.9)",
        f"{name} (optimizer.beta_1=0.5)",
    ]


def test_labels_differ_wherever_settings_do() -> None:
    """All pairs of three values of two fields, of which one value of each is the usual one."""
    rates, momenta = (0.1, 0.1, 0.1, 0.2, 0.3), (0.9, 0.9, 0.9, 0.8, 0.7)
    runs = {
        (rate, share): run(base_lr=rate, bn_momentum=share) for rate in rates for share in momenta
    }
    for chosen in (list(runs.values()), list(runs.values())[:4]):
        found = technique_labels(settings(*chosen))
        assert len(set(found.values())) == len(found) == len(chosen)


def test_runs_on_the_search_split_are_told_from_others() -> None:
    part = config(validate_on="train_part")
    rows = runs_frame([record(config()), record(part)])
    assert rows["context"].tolist() == [(), ("validated on train_part",)]
    assert "whole held-out split, or where so named a tenth of the training" in notes(rows)
    assert "a tenth of the training images, which no run" in notes(runs_frame([record(part)]))
    assert "a tenth" not in notes(runs_frame([record(config())]))


def test_a_setting_is_one_whatever_signs_it_has() -> None:
    context = Context(["weak scaling", "from w, accumulation 4.h5", "accumulation 2"])
    assert without_batch(context) == ("from w, accumulation 4.h5",)
    assert str(context) == "weak scaling, from w, accumulation 4.h5, accumulation 2"


def notes(runs: pd.DataFrame) -> str:
    return " ".join(column.description for column in reached.columns(runs))
