"""The input contract: identity, bounds, and errors that say what to do."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.builders import config
from train.config.optimizer import Adam, Lamb, Sgd
from train.config.run import Target, load_config, used_train_images
from train.config.schedule import Constant, Cosine, StepDecay
from train.config.technique import Technique
from train.errors import ConfigError


def test_cell_id_is_readable_and_stable() -> None:
    assert re.fullmatch(r"digits-cnn-naive-g1-s0-[0-9a-f]{6}", config().cell_id())
    # a golden value: a change here makes every existing result a stranger
    assert config().cell_id() == "digits-cnn-naive-g1-s0-7e9469"
    assert config(dataset="folder:/data/My Pics (new)").cell_id().startswith("my_pics_new-")


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"gpus": 2}, {"epochs": 3}, {"batch_per_rank": 32}, {"data_fraction": 0.5},
     {"model": "resnet_mini"}, {"partition": "whole"}, {"partition": "same"}, {"scaling": "strong"},
     {"accumulation": 2}, {"framework": "mirrored"}, {"target": Target(train_accuracy=0.5)},
     {"target": Target(train_accuracy=0.5, within_s=9)}, {"keep_weights": True},
     {"technique": Technique(name="naive", base_lr=0.002, base_batch=64)}],
)  # fmt: skip
def test_any_change_is_another_cell(change) -> None:
    assert config(**change).cell_id() != config().cell_id()


@pytest.mark.parametrize(
    ("field", "kinds"),
    [("optimizer", [Sgd(), Adam(), Lamb()]), ("schedule", [Constant(), StepDecay(), Cosine()])],
)
def test_kinds_with_all_defaults_are_different_cells(field, kinds) -> None:
    ids = {
        config(technique=Technique(name="n", base_lr=1, base_batch=1, **{field: kind})).cell_id()
        for kind in kinds
    }
    assert len(ids) == len(kinds)


def test_a_copy_of_a_named_config_has_its_own_name() -> None:
    """The id is computed once a config, and is no part of it."""
    named, fresh = config(), config()
    assert named.cell_id() == fresh.cell_id() and named == fresh and hash(named) == hash(fresh)
    assert named.model_dump() == config().model_dump()
    assert "-s7-" in named.model_copy(update={"seed": 7}).cell_id()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "cifar"}, "unknown dataset 'cifar'; did you mean"),
        ({"surprise": 1}, "surprise"),
        ({"target": {"train_accuracy": 75}}, "less than or equal to 1"),
        ({"epochs": 10**12}, "less than or equal to 100000"),
    ],
)  # fmt: skip
def test_wrong_values_are_named(change, words) -> None:
    with pytest.raises(ValidationError, match=words):
        config(**change)


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_fraction_of_all_is_all_and_of_a_tenth_is_a_tenth(n, tenths) -> None:
    assert used_train_images(n, 1.0) == n
    assert used_train_images(tenths * 10, 0.1) == tenths


def test_load_config_names_the_file_and_each_finding(tmp_path) -> None:
    file = tmp_path / "config.json"
    told = config().model_dump(mode="json") | {"gpuz": 2, "epochs": 0}
    file.write_text(json.dumps(told))
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    text = str(caught.value)
    assert str(file) in text and "gpuz: unknown key (found 2)" in text and "epochs" in text
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path / "absent.json")
    file.write_text('{"dataset": ')
    with pytest.raises(ConfigError, match="not a valid config"):
        load_config(file)
