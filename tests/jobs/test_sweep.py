"""From a sweep file to configs: against a brute-force reference, and what it refuses."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.sweep import Sweep, load_sweep, sweep_names
from jobs.techniques import load_techniques
from train.config import DATASETS, ConfigError, RunConfig, steps_per_epoch

COMMON = {"dataset": "digits", "model": "cnn", "epochs": 4, "batch_per_rank": 32}
VALUES: dict[str, list[Any]] = {
    "gpus": [1, 2, 4],
    "technique": ["naive", "batch_norm", "lr_scaling", "sgd"],
    "seed": [0, 1, 2],
    "base_lr": [0.1, 0.01],
    "data_fraction": [0.5, 1.0],
}
ROWS = load_techniques()
NEEDED = {"gpus": 1, "technique": "naive"}  # for cells whose axes lack one of these


def load(content: dict[str, Any] | str) -> Sweep:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.yaml"
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
        path.write_text(text)
        return load_sweep(str(path))


def refusal(content: dict[str, Any] | str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(content)
    return str(caught.value)


def seen(config: RunConfig) -> dict[str, Any]:
    """The keys that these tests vary, read back from a config."""
    return {
        "gpus": config.gpus,
        "technique": config.technique.name,
        "seed": config.seed,
        "base_lr": config.technique.base_lr,
        "data_fraction": config.data_fraction,
    }


# --- the reference: one loop per key, one test per rule -----------------------------------------


def filled(cell: dict[str, Any]) -> dict[str, Any]:
    row = ROWS[cell["technique"]]
    return {"seed": 0, "base_lr": row.fields["base_lr"], "data_fraction": 1.0, **cell}


def combinations(lists: dict[str, list[Any]]) -> list[dict[str, Any]]:
    if not lists:
        return [{}]
    key, *rest = lists
    others = combinations({name: lists[name] for name in rest})
    return [{key: value, **other} for value in lists[key] for other in others]


def fits(rule: dict[str, Any], cell: dict[str, Any]) -> bool:
    for key, wanted in rule.items():
        if filled(cell)[key] not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True


def reference(content: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The cells in order; None where the file is to be refused."""
    crossed = [
        {k: v for k, v in content.items() if k in VALUES} | cell
        for cell in combinations(content.get("matrix", {}))
    ]
    rules = content.get("exclude", [])
    if not all(any(fits(rule, cell) for cell in crossed) for rule in rules):
        return None
    cells = [cell for cell in crossed if not any(fits(rule, cell) for rule in rules)]
    entries = content.get("include", [])
    groups = [combinations(entry) for entry in entries]
    written = cells + [cell for group in groups for cell in group]
    final = [dict(cell) for cell in written]
    for rule in content.get("override", []):
        hits = [i for i, cell in enumerate(written) if fits(rule["when"], cell)]
        if not hits:
            return None
        for i in hits:
            final[i] |= rule["set"]
    unique: list[dict[str, Any]] = []
    news = []
    for i, cell in enumerate(final):
        if filled(cell) not in unique:
            unique.append(filled(cell))
            news.append(i)
    start = len(cells)
    for group in groups:
        if not any(start <= i < start + len(group) for i in news):
            return None
        start += len(group)
    return unique or None


def lists(*, single: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Some keys, each with some of its values."""
    some = {
        key: st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)
        for key, values in VALUES.items()
    }
    picked = st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4, unique=True)
    whole = picked.flatmap(lambda keys: st.fixed_dictionaries({key: some[key] for key in keys}))
    return whole.map(lambda d: {k: v[0] for k, v in d.items()}) if single else whole


SWEEPS = st.fixed_dictionaries(
    {"matrix": lists()},
    optional={
        "exclude": st.lists(lists(), max_size=2),
        "include": st.lists(lists(), max_size=2),
        "override": st.lists(
            st.fixed_dictionaries({"when": lists(), "set": lists(single=True)}), max_size=2
        ),
    },
)


@settings(max_examples=150, deadline=None)
@given(SWEEPS)
def test_cells_are_those_of_the_brute_force_reference(parts: dict[str, Any]) -> None:
    entries = [
        entry | {key: [value] for key, value in NEEDED.items() if key not in entry}
        for entry in parts.get("include", [])
    ]
    defaults = {key: value for key, value in NEEDED.items() if key not in parts["matrix"]}
    content = {**defaults, **parts, "include": entries}
    expected = reference(content)
    if expected is None:
        with pytest.raises(ConfigError):
            load({**COMMON, **content})
        return
    sweep = load({**COMMON, **content})
    assert [seen(config) for config in sweep.configs] == expected


@settings(max_examples=50, deadline=None)
@given(lists())
def test_a_plain_matrix_has_the_product_of_its_lists(matrix: dict[str, list[Any]]) -> None:
    defaults = {key: value for key, value in NEEDED.items() if key not in matrix}
    sweep = load({**COMMON, **defaults, "matrix": matrix})
    ids = [config.cell_id() for config in sweep.configs]
    assert len(ids) == math.prod(len(values) for values in matrix.values())
    assert len(set(ids)) == len(ids)
    assert load({**COMMON, **defaults, "matrix": matrix}).configs == sweep.configs
    for config in sweep.configs:
        assert RunConfig.model_validate_json(config.model_dump_json()) == config
    wanted = matrix.get("technique", ["naive"])
    assert list(sweep.techniques) == wanted


# --- one part at a time -------------------------------------------------------------------------


def test_the_last_key_varies_fastest() -> None:
    sweep = load({**COMMON, "matrix": {"gpus": [2, 1], "technique": ["sgd"], "seeds": 2}})
    assert [(c.gpus, c.seed) for c in sweep.configs] == [(2, 0), (2, 1), (1, 0), (1, 1)]


def test_zipped_lists_advance_together_and_groups_are_crossed() -> None:
    content = {
        "dataset": "digits",
        "epochs": 4,
        "matrix": {"technique": ["naive", "sgd"]},
        "zip": [
            {"model": ["cnn", "resnet_mini"], "batch_per_rank": [64, 128]},
            {"gpus": [1, 2, 4], "seed": [5, 6, 7]},
        ],
    }
    cells = load(content).configs
    assert len(cells) == 2 * 2 * 3
    assert {(c.model, c.batch_per_rank) for c in cells} == {("cnn", 64), ("resnet_mini", 128)}
    assert {(c.gpus, c.seed) for c in cells} == {(1, 5), (2, 6), (4, 7)}


def test_one_cell_needs_no_matrix_and_include_can_stand_alone() -> None:
    assert len(load({**COMMON, **NEEDED}).configs) == 1
    sweep = load({**COMMON, "include": [{"technique": "naive", "gpus": [1, 2]}]})
    assert [c.gpus for c in sweep.configs] == [1, 2]


def test_techniques_keep_the_order_of_the_file_not_of_the_cells() -> None:
    content = {
        **COMMON,
        "matrix": {"gpus": [1, 2], "technique": ["naive", "lr_scaling", "batch_norm"]},
        "exclude": [{"technique": "lr_scaling", "gpus": 1}],
        "include": [{"technique": "sgd", "gpus": 1}],
    }
    assert load(content).techniques == ("naive", "lr_scaling", "batch_norm", "sgd")


def test_parameters_of_a_technique_can_be_shared_varied_and_overridden() -> None:
    content = {
        **COMMON,
        "gpus": 1,
        "schedule": "cosine",
        "matrix": {"technique": ["naive", "sgd"], "base_lr": [0.1, 0.2]},
        "override": [
            {"when": {"technique": "sgd"}, "set": {"optimizer": {"momentum": 0.5}}},
            {"when": {"base_lr": 0.2}, "set": {"base_lr": 0.3}},
            {"when": {"base_lr": 0.2, "technique": "sgd"}, "set": {"base_lr": 0.4}},
        ],
    }
    found = {}
    for config in load(content).configs:
        assert config.technique.schedule.name == "cosine"
        found[(config.technique.name, config.technique.base_lr)] = config.technique.optimizer
    assert list(found) == [("naive", 0.1), ("naive", 0.3), ("sgd", 0.1), ("sgd", 0.4)]
    assert found[("sgd", 0.1)].model_dump() == {"name": "sgd", "momentum": 0.5, "nesterov": True}
    assert found[("naive", 0.1)].name == "adam"


def test_rules_see_what_the_technique_brings_along() -> None:
    content = {
        **COMMON,
        "matrix": {"gpus": [1, 2], "technique": ["naive", "lr_scaling", "lamb", "sgd"]},
        "exclude": [{"lr_scaling": ["linear", "sqrt"], "gpus": 1}],
        "override": [{"when": {"optimizer": "sgd"}, "set": {"base_lr": 0.5}}],
    }
    cells = load(content).configs
    assert [c.technique.name for c in cells if c.gpus == 1] == ["naive", "sgd"]
    rates = {c.technique.name: c.technique.base_lr for c in cells}
    assert rates["sgd"] == 0.5
    assert rates["naive"] != 0.5


def test_weak_and_strong_scaling() -> None:
    gpus = {"technique": "naive", "matrix": {"gpus": [1, 2, 4]}}
    base = {"dataset": "digits", "model": "cnn", "epochs": 4}
    weak = load({**base, **gpus, "batch_per_rank": 32}).configs
    assert [(c.batch_per_rank, c.global_batch) for c in weak] == [(32, 32), (32, 64), (32, 128)]
    assert {c.technique.base_batch for c in weak} == {32}
    strong = load({**base, **gpus, "scaling": "strong", "global_batch": 64}).configs
    assert [(c.batch_per_rank, c.global_batch) for c in strong] == [(64, 64), (32, 64), (16, 64)]
    assert {c.technique.base_batch for c in strong} == {64}
    assert {c.scaling for c in strong} == {"strong"}
    own = load({**base, **gpus, "batch_per_rank": 32, "base_batch": 256}).configs
    assert {c.technique.base_batch for c in own} == {256}


def test_weak_and_strong_in_one_sweep_with_null() -> None:
    content = {
        "dataset": "digits", "model": "cnn", "epochs": 4, "technique": "naive",
        "matrix": {"gpus": [1, 2]},
        "zip": [
            {"scaling": ["weak", "strong"], "batch_per_rank": [32, None],
             "global_batch": [None, 64]},
        ],
    }  # fmt: skip
    found = [(c.scaling, c.gpus, c.batch_per_rank) for c in load(content).configs]
    assert found == [("weak", 1, 32), ("strong", 1, 64), ("weak", 2, 32), ("strong", 2, 32)]


def test_equal_cells_are_merged() -> None:
    content = {
        **COMMON,
        "matrix": {"gpus": [1, 1, 2], "technique": ["naive"]},
        "include": [{"technique": "naive", "gpus": [2, 4]}],
    }
    assert [c.gpus for c in load(content).configs] == [1, 2, 4]


def test_folders_and_their_image_size() -> None:
    content = {**COMMON, **NEEDED, "dataset": "folder:/data/Cats", "image_size": 32}
    (config,) = load(content).configs
    assert (config.dataset, config.image_size) == ("folder:/data/Cats", 32)
    text = refusal({**content, "dataset": "mnist"})
    assert "mine.yaml:7: image_size is for folder:PATH; mnist has its own" in text


MATRIX = {"gpus": [1, 2], "technique": ["naive", "lamb"]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # rules that match nothing
        ({"exclude": [{"technique": "sgd"}]}, "technique is never sgd (it is naive, lamb)"),
        ({"exclude": [{"gpus": 8}]}, "mine.yaml:13: this exclude rule matches none of the 4 cells"),
        ({"exclude": [{"gpus": 1, "seed": 0, "technique": "sgd"}]}, "technique is never sgd"),
        (
            {"exclude": [{"gpus": 1}, {"technique": "naive"}, {"gpus": 1, "base_lr": 0.005}],
             "override": [{"when": {"gpus": 1, "base_lr": 0.005}, "set": {"epochs": 5}}]},
            "override rule matches none of the 1 cells: gpus is never 1 (it is 2)",
        ),
        ({"exclude": [{"technique": "naive", "lr_scaling": "sqrt"}]}, "none has all of it at once"),
        ({"exclude": [{"image_size": 32}]}, "image_size is never 32 (it is null)"),
        ({"exclude": [{"global_batch": 32}]}, "global_batch is never 32 (it is null)"),
        (
            {"override": [{"when": {"gpus": 4}, "set": {"epochs": 9}}]},
            "this override rule matches none of the 4 cells: gpus is never 4 (it is 1, 2)",
        ),
        ({"include": [{"technique": "naive", "gpus": 2}]}, "adds no cell"),
        # no cell, too many
        ({"exclude": [{"gpus": [1, 2]}]}, "drop every cell"),
        ({"matrix": {**MATRIX, "seeds": 2501}}, "10,004 cells, 10,000 are allowed"),
        ({"matrix": {**MATRIX, "seeds": 10**12}}, "10,000 are allowed"),
        # cells that are incomplete or at odds with themselves
        ({"epochs": None}, "'epochs' is missing"),
        ({"batch_per_rank": None}, "'batch_per_rank' is missing: scaling: weak fixes it"),
        ({"scaling": "strong"}, "scaling: strong fixes global_batch, so batch_per_rank"),
        ({"global_batch": 64}, "leave it out, or say 'scaling: strong'"),
        ({"warmup_epochs": 5}, "warm-up of 5 epochs is longer than the run (4 epochs)"),
        ({"pretrained": "w.h5"}, "pretrained weights are for resnet50, found model cnn"),
        ({"optimizer": {"momentum": 0.5}}, "technique.optimizer.adam.momentum: Extra inputs"),
    ],
)  # fmt: skip
def test_what_is_refused(changes: dict[str, Any], said: str) -> None:
    text = refusal({**COMMON, "matrix": MATRIX, **changes})
    assert said in text
    assert "mine.yaml:" in text


def test_messages_name_the_line_that_is_to_blame_and_the_cell() -> None:
    text = refusal("""\
dataset: digits
model: cnn
batch_per_rank: 32
matrix:
  gpus: [1, 2]
  technique: [naive, lr_scaling_warmup]
  epochs:
    - 4
    - 2
""")
    assert "mine.yaml:9: warm-up of 3 epochs is longer than the run (2 epochs)" in text
    assert "(cell: gpus=1, technique=lr_scaling_warmup, epochs=2)" in text


def test_a_global_batch_that_does_not_divide() -> None:
    content = """\
dataset: digits
model: cnn
epochs: 4
technique: naive
scaling: strong
global_batch: 100
matrix: {gpus: [1, 8]}
"""
    text = refusal(content)
    assert "mine.yaml:6: global_batch 100 does not divide by 8 gpus: use 96 or 104" in text
    assert "use 8" in refusal(content.replace("100", "4"))
    kept = load(content + "exclude: {gpus: 8}\n")
    assert [c.gpus for c in kept.configs] == [1]


def test_two_cells_with_one_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunConfig, "cell_id", lambda self: f"cell-{self.gpus}")
    with pytest.raises(ConfigError, match="two different cells have the id cell-1"):
        load({**COMMON, "matrix": {"gpus": [1], "technique": ["naive", "sgd"]}})


# --- names and files ----------------------------------------------------------------------------


def test_names_and_paths(tmp_path: Path) -> None:
    text = yaml.safe_dump({**COMMON, **NEEDED})
    for name in ("one.yaml", "two.yml"):
        (tmp_path / name).write_text(text)
    assert sweep_names(tmp_path) == ["one", "two"]
    assert load_sweep("one", tmp_path).source == tmp_path / "one.yaml"
    assert load_sweep("two", tmp_path).name == "two"
    assert load_sweep(str(tmp_path / "two.yml")).name == "two"
    with pytest.raises(ConfigError, match=r"unknown sweep 'onee'; did you mean 'one'\? known: one"):
        load_sweep("onee", tmp_path)
    with pytest.raises(ConfigError, match=r"no sweep file .*three\.yaml.* one, two"):
        load_sweep(str(tmp_path / "three.yaml"), tmp_path)
    with pytest.raises(ConfigError, match="directory"):
        load_sweep(f"{tmp_path}/")


@pytest.mark.parametrize("name", sweep_names())
def test_every_shipped_sweep_loads_and_has_steps_to_take(name: str) -> None:
    sweep = load_sweep(name)
    assert sweep.name == name
    assert sweep.title != name
    assert set(sweep.techniques) == {config.technique.name for config in sweep.configs}
    for config in sweep.configs:
        assert steps_per_epoch(config, DATASETS[config.dataset].train_images) >= 1
        assert config.technique.warmup_epochs <= config.epochs / 2


def test_the_shipped_sweeps() -> None:
    sizes = {name: len(load_sweep(name).configs) for name in sweep_names()}
    assert sizes["quickstart"] == 2 * 4 * 2
    assert sizes["smoke"] == 6
    assert sizes["cifar10"] == sizes["mnist"] == sizes["fashion_mnist"] == 4 * 5 * 3
    five = ("naive", "batch_norm", "lr_scaling", "lr_scaling_warmup", "lamb")
    assert load_sweep("cifar10").techniques == load_sweep("cifar10_local").techniques == five
    assert load_sweep("quickstart").techniques == tuple(t for t in five if t != "lr_scaling")


# --- identity of a cell -------------------------------------------------------------------------


def test_the_id_of_a_cell_is_stable() -> None:
    """Finished cells are found again by it: a change here repeats everybody's sweeps."""
    (config,) = load({**COMMON, **NEEDED, "seed": 3}).configs
    assert config.cell_id() == "digits-cnn-naive-g1-s3-e7c6a2"


def test_any_change_of_a_field_is_another_cell() -> None:
    (config,) = load({**COMMON, **NEEDED, "dataset": "folder:a", "model": "resnet50"}).configs
    changes: dict[str, Any] = {
        "dataset": "folder:b", "image_size": 64, "model": "cnn", "pretrained": "w.h5", "gpus": 2,
        "scaling": "strong", "batch_per_rank": 31, "epochs": 5, "seed": 1, "data_fraction": 0.5,
        "partition": "whole",
        "technique": {
            "name": "other", "normalisation": "batch_norm", "bn_momentum": 0.8, "base_lr": 0.5,
            "base_batch": 7, "lr_scaling": "linear", "warmup_epochs": 1.0,
            "schedule": {"name": "cosine", "final": 0.0},
            "optimizer": {"name": "adam", "beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-7},
        },
    }  # fmt: skip
    whole = json.loads(config.model_dump_json())
    assert set(changes) == set(whole) - {"schema_version"}
    assert set(changes["technique"]) == set(whole["technique"])
    variants = [{**whole, key: value} for key, value in changes.items() if key != "technique"]
    variants += [
        {**whole, "technique": {**whole["technique"], key: value}}
        for key, value in changes["technique"].items()
    ]
    ids = {RunConfig.model_validate_json(json.dumps(item)).cell_id() for item in variants}
    assert len(ids) == len(variants)
    assert config.cell_id() not in ids
