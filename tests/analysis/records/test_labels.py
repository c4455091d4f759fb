"""Names that tell settings of one technique apart."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from analysis.records.labels import short_names, technique_labels, without_batch
from analysis.table import Names
from analysis.topics.convergence import reached
from tests.analysis.builders import runs_frame
from tests.builders import config, record
from train.config.technique import Technique
from train.record.run import RunRecord


def run(**technique: Any) -> RunRecord:
    of = config()
    settings = of.technique.model_dump() | technique
    return record(of.model_copy(update={"technique": Technique.model_validate(settings)}))


def of_runs(*records: RunRecord) -> dict[str, dict[str, Any]]:
    found = [item.config.technique for item in records]
    return {one.model_dump_json(): one.model_dump(mode="json") for one in found}


PLAIN = {"name": "as_they_are"}
MOVED = {"name": "crop_flip", "crop": 2, "flip": "none", "cutout": 0}
STEP = {"name": "step", "unit": "epochs", "milestones": [1], "factor": 0.1}
NOVOGRAD, TFA = ({"name": kind} for kind in ("novograd", "novograd_tfa"))


@pytest.mark.parametrize(
    ("settings", "differing"),
    [
        ([{}, {}], [""]),
        ([{"base_lr": 0.1}, {"base_lr": 0.2}], [" (base_lr=0.1)", " (base_lr=0.2)"]),
        # a search that changes one thing at a time names that thing
        ([{"base_lr": 0.1, "augmentation": MOVED}, {"base_lr": 0.2, "augmentation": MOVED},
          {"base_lr": 0.1, "augmentation": MOVED, "label_smoothing": 0.1},
          {"base_lr": 0.1, "augmentation": PLAIN},
          {"base_lr": 0.1, "augmentation": {**MOVED, "crop": 4}}],
         ["", " (base_lr=0.2)", " (label_smoothing=0.1)", " (augmentation=as_they_are)",
          " (augmentation.crop=4)"]),
        # the numbers of a kind go without saying where the kind is named
        ([{"schedule": {"name": "constant"}}, {"schedule": STEP}],
         [" (schedule=constant)", " (schedule=step)"]),
        ([{"optimizer": NOVOGRAD}, {"optimizer": TFA}],
         [" (optimizer=novograd)", " (optimizer=novograd_tfa)"]),
        # unless one kind has two values
        ([{"optimizer": NOVOGRAD}, {"optimizer": TFA}, {"optimizer": {**NOVOGRAD, "beta_1": 0.5}}],
         [" (optimizer.beta_1=0.95)", " (optimizer=novograd_tfa, optimizer.beta_1=0.9)",
          " (optimizer.beta_1=0.5)"]),
    ],
)  # fmt: skip
def test_a_label_says_what_differs(settings: list[dict[str, Any]], differing: list[str]) -> None:
    name = run().config.technique.name
    found = technique_labels(of_runs(*(run(**own) for own in settings)))
    assert list(found.values()) == [name + words for words in differing]


def test_labels_differ_wherever_settings_do() -> None:
    """All pairs of three values of two fields, of which one value of each is the usual one."""
    rates, momenta = (0.1, 0.1, 0.1, 0.2, 0.3), (0.9, 0.9, 0.9, 0.8, 0.7)
    runs = {
        (rate, share): run(base_lr=rate, bn_momentum=share) for rate in rates for share in momenta
    }
    for chosen in (list(runs.values()), list(runs.values())[:4]):
        found = technique_labels(of_runs(*chosen))
        assert len(set(found.values())) == len(found) == len(chosen)


def test_runs_on_the_search_split_are_told_from_others() -> None:
    part = config(validate_on="train_part")
    rows = runs_frame([record(config()), record(part)])
    assert rows["context"].tolist() == [(), ("validated on train_part",)]
    assert "whole held-out split, or where so named a tenth of the training" in notes(rows)
    assert "a tenth of the training images, which no run" in notes(runs_frame([record(part)]))
    assert "a tenth" not in notes(runs_frame([record(config())]))


def test_rows_are_told_apart_by_what_sharpness_was_measured_on_and_one_epoch_is_one() -> None:
    rows = [config(), config(sharpness_images=512), config(epochs=1)]
    assert runs_frame(map(record, rows))["context"].tolist() == [
        ("2 epochs",), ("2 epochs", "sharpness on 512 images"), ("1 epoch",)
    ]  # fmt: skip


def test_networks_have_short_names_which_differ_where_their_files_do() -> None:
    """Records need no file of the network."""
    models = ["cnn", "keras.applications.MobileNetV2", f"vit.py:build@{'0' * 64}",
              f"vit.py:small@{'0' * 64}", f"vit.py:build@{'1' * 64}"]  # fmt: skip
    rows = runs_frame([record(config(model=model, dataset="cifar10")) for model in models])
    assert [*map(str, rows["context"])] == [
        "cnn", "MobileNetV2", "vit@000000", "vit:small", "vit@111111"
    ]  # fmt: skip
    assert rows["model"].tolist() == models
    assert rows["workload"].nunique() == len(models)
    (one,) = runs_frame([record(config(model=models[2], pretrained=f"w.h5@{'2' * 64}"))])[
        "pretrained"
    ]
    assert short_names([one]) == {one: "w.h5"}


def test_a_setting_is_one_whatever_signs_it_has() -> None:
    context = Names(["weak scaling", "from w, accumulation 4.h5", "accumulation 2"])
    assert without_batch(context) == ("from w, accumulation 4.h5",)
    assert str(context) == "weak scaling, from w, accumulation 4.h5, accumulation 2"


def notes(runs: pd.DataFrame) -> str:
    return " ".join(column.description for column in reached.columns(runs))
