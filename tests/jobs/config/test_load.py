"""From a sweep file to configs: against a brute-force reference, and what it refuses."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config import load as sweeps
from jobs.config.expand import expand
from jobs.config.grammar import parse
from jobs.config.load import load_sweep
from jobs.config.sweep import Sweep
from jobs.config.techniques import load_techniques
from jobs.config.yamlfile import find_file, load_yaml, names_in
from train.config.datasets import DATASETS
from train.config.optimizer import Sgd
from train.config.plan import plan_of
from train.config.run import RunConfig, Target
from train.config.schedule import CropFlip
from train.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
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
    assert found[("sgd", 0.1)] == Sgd(momentum=0.5, nesterov=True)
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


STRONG = {
    "dataset": "digits", "model": "cnn", "epochs": 4, "technique": "naive", "scaling": "strong",
    "global_batch": 128,
}  # fmt: skip


def test_accumulation_stands_for_ranks() -> None:
    weak = load(
        {**COMMON, "technique": "naive", "matrix": {"gpus": [1, 2], "accumulation": [1, 8]}}
    )
    assert [(c.gpus, c.accumulation, c.global_batch) for c in weak.configs] == [
        (1, 1, 32), (1, 8, 256), (2, 1, 64), (2, 8, 512),
    ]  # fmt: skip
    assert {c.technique.base_batch for c in weak.configs} == {32}  # still the batch at one GPU
    # strong: the accumulation follows from what fits into memory
    strong = load({**STRONG, "batch_per_rank": 16, "matrix": {"gpus": [1, 2, 8]}}).configs
    assert [(c.gpus, c.batch_per_rank, c.accumulation) for c in strong] == [
        (1, 16, 8), (2, 16, 4), (8, 16, 1),
    ]  # fmt: skip
    assert {(c.global_batch, c.technique.base_batch) for c in strong} == {(128, 128)}
    # or the batch per rank from the accumulation
    other = load({**STRONG, "accumulation": 4, "matrix": {"gpus": [1, 2, 8]}}).configs
    assert [(c.batch_per_rank, c.accumulation) for c in other] == [(32, 4), (16, 4), (4, 4)]
    (both,) = load({**STRONG, "gpus": 2, "batch_per_rank": 16, "accumulation": 4}).configs
    assert both == strong[1] == other[1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"batch_per_rank": 24},
            "128 does not divide by 2 gpus x batch_per_rank 24: use 96 or 144",
        ),
        ({"batch_per_rank": 128}, "by 2 gpus x batch_per_rank 128: use 256, or exclude the cell"),
        ({"accumulation": 3}, "by 2 gpus x 3 accumulated batches: use 126 or 132, or exclude"),
        (
            {"batch_per_rank": 16, "accumulation": 8},
            "accumulation 8 is at odds with the rest: global_batch 128 is 2 gpus x "
            "batch_per_rank 16 x 4; leave one of the three out",
        ),
    ],
)
def test_global_batches_that_do_not_come_out(changes: dict[str, Any], said: str) -> None:
    text = refusal({**STRONG, "gpus": 2, **changes})
    assert said in text
    assert "mine.yaml:6:" in text or "mine.yaml:9:" in text


@pytest.mark.parametrize("rule", [{"lr_scaling": "linear"}, {"regime_adaptation": True}])
def test_a_rule_needs_a_base_where_the_batch_is_an_axis(rule: dict[str, Any]) -> None:
    """Each batch would be its own base, and the rule would never act."""
    strong = {key: value for key, value in STRONG.items() if key != "global_batch"}
    content = {**strong, "gpus": 1, **rule, "matrix": {"global_batch": [32, 64]}}
    text = refusal(content)
    assert "mine.yaml:11: global_batch changes between cells and technique naive goes by it" in text
    assert "say the global batch that base_lr belongs to, e.g. base_batch: 32" in text
    assert len(load({**content, "base_batch": 32}).configs) == 2
    own = {"zip": [{"global_batch": [32, 64], "base_batch": [32, 64]}]}
    assert len(load({**strong, "gpus": 1, **rule, **own}).configs) == 2
    weak = {**COMMON, **NEEDED, **rule, "matrix": {"batch_per_rank": [16, 32]}}
    del weak["batch_per_rank"]
    assert "batch_per_rank changes between cells" in refusal(weak)
    zipped = {"zip": [{"global_batch": [32, 64], "seed": [2, 3]}]}
    listed = {"include": [{"global_batch": [32, 64]}]}
    over = {
        "matrix": {"global_batch": [32], "seeds": 2},
        "override": [{"when": {"seed": 1}, "set": {"global_batch": 64}}],
    }
    for way in (zipped, listed, over):
        text = refusal({**strong, "gpus": 1, **rule, **way})
        assert "global_batch changes between cells" in text
    del content[next(iter(rule))]
    assert len(load(content).configs) == 2


@pytest.mark.parametrize("left_out", ["clip_norm", "warmup_epochs"])
def test_noise_without_a_clip_and_a_warm_up_is_refused_as_a_sweep_only(left_out: str) -> None:
    noisy = {"noise_batch": 8, "clip_norm": 1.0, "warmup_epochs": 1, "warmup_from": "zero"}
    content = {**COMMON, **NEEDED, **noisy}
    (whole,) = load(content).configs
    del content[left_out]
    text = refusal(content)
    assert "noise_batch 8 multiplies the gradients of" in text and "set clip_norm, e.g. 1.0" in text
    stored = whole.model_dump(mode="json")
    del stored["technique"][left_out]
    assert RunConfig.model_validate_json(json.dumps(stored)).technique.noise_batch == 8


def test_every_field_of_a_technique_and_of_a_cell_can_be_set() -> None:
    target = {"train_accuracy": 0.75, "within_s": 240}
    content = {
        **COMMON, "gpus": 2, "dataset": "cifar10", "technique": "ghost_batch_norm",
        "ghost_batch": 16, "bn_statistics": "reestimated", "initialisation": "he",
        "zero_gamma": True, "standardise": True, "label_smoothing": 0.1, "noise_batch": 32,
        "augmentation": {"name": "crop_flip", "crop": 2}, "precision": "mixed_bfloat16",
        "compression": "bf16", "clip_norm": 1, "warmup_from": "zero", "warmup_epochs": 1,
        "matrix": {"target": [None, target]},
        "override": [
            {"when": {"target": target}, "set": {"optimizer": "muon"}},
            {"when": {"augmentation": "crop_flip"}, "set": {"warmup_epochs": 2}},
        ],
    }  # fmt: skip
    plain, timed = load(content).configs
    assert plain.target is None
    assert timed.target == Target(**target)
    assert (plain.technique.optimizer.name, timed.technique.optimizer.name) == ("adam", "muon")
    row = timed.technique
    assert (row.ghost_batch, row.bn_statistics, row.zero_gamma) == (16, "reestimated", True)
    assert (row.label_smoothing, row.noise_batch, row.clip_norm) == (0.1, 32, 1.0)
    assert (row.augmentation, row.warmup_epochs) == (CropFlip(crop=2), 2)


def test_frameworks_are_an_axis() -> None:
    names = ["horovod", "mirrored", "multi_worker_mirrored"]
    cells = load({**COMMON, **NEEDED, "matrix": {"framework": names}}).configs
    assert [c.framework for c in cells] == names
    assert len({c.cell_id() for c in cells}) == 3


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
        ({"scaling": "strong"}, "'global_batch' is missing: scaling: strong fixes it"),
        ({"global_batch": 64}, "leave it out, or say 'scaling: strong'"),
        ({"warmup_epochs": 5, "warmup_from": "zero"},
         "warm-up of 5 epochs (warmup_epochs) is longer than the run (4 ep"),
        # combinations that would train something else than they say
        ({"ghost_batch": 8}, "mine.yaml:12: technique: ghost_batch 8 has no effect with norm"),
        ({"normalisation": "ghost_batch_norm", "ghost_batch": 12},
         "mine.yaml:13: ghost_batch 12 does not divide batch_per_rank 32: use"),
        ({"reduction": "adasum", "matrix": {"gpus": [2, 3], "technique": ["naive"]}},
         "gpus must be a power of two, found 3: use 2 or 4 (cell: gpus=3"),
        ({"optimizer": "novograd_tfa", "accumulation": 2}, "use novograd, the published rule"),
        ({"framework": "mirrored", "compression": "fp16"}, "mine.yaml:12: framework mirrored"),
        ({"batch_growth": "grow"}, "use fewer milestones or more epochs (cell: gpus=1"),
        ({"schedule": {"name": "step", "milestones": [2, 5], "unit": "epochs"}},
         "mine.yaml:12: schedule: milestones [5.0] (epochs) never fire in a run of 4 epochs"),
        ({"pretrained": "w.h5"}, "pretrained weights are for resnet50, found model cnn"),
        ({"optimizer": {"momentum": 0.5}}, "technique.optimizer.adam.momentum: unknown key "
         "'momentum'; known: name, beta_1, beta_2, epsilon"),
        ({"optimizer": {"name": "lamb", "exclude": "bias"}},
         "optimizer.exclude: expected a list, found \"bias\": write [bias]"),
        ({"technique": "lamb", "matrix": {"gpus": [1]}, "optimizer": {"exclude": "bias"}},
         "technique.optimizer.lamb.exclude: expected a list, found 'bias': write [bias]"),
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
    assert "mine.yaml:9: warm-up of 3 epochs (warmup_epochs) is longer than the run (2 ep" in text
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
    assert load_sweep("one", tmp_path).source == tmp_path / "one.yaml"
    assert load_sweep("two", tmp_path).name == "two"
    assert load_sweep(str(tmp_path / "two.yml")).name == "two"
    with pytest.raises(ConfigError, match=r"unknown sweep 'onee'; did you mean 'one'\? known: one"):
        load_sweep("onee", tmp_path)
    with pytest.raises(ConfigError, match=r"no sweep file .*three\.yaml.* one, two"):
        load_sweep(str(tmp_path / "three.yaml"), tmp_path)
    with pytest.raises(ConfigError, match="directory"):
        load_sweep(f"{tmp_path}/")


#: Of data sets that are no part of the suite: the course's own split of the artists' paintings.
FOLDERS = {"folder:artists": 3181}


@pytest.mark.parametrize("name", names_in(sweeps.SWEEPS))
def test_every_shipped_sweep_loads_and_has_steps_to_take(name: str) -> None:
    sweep = load_sweep(name)
    assert sweep.name == name
    assert sweep.title != name
    assert set(sweep.techniques) == {config.technique.name for config in sweep.configs}
    images = FOLDERS | {key: facts.train_images for key, facts in DATASETS.items()}
    for config in sweep.configs:
        assert plan_of(config, images[config.dataset]).total_steps >= config.epochs
        assert config.technique.warmup_epochs <= config.epochs / 2


def test_the_shipped_sweeps() -> None:
    sizes = {name: len(load_sweep(name).configs) for name in names_in(sweeps.SWEEPS)}
    assert sizes["quickstart"] == 2 * 4 * 2
    assert sizes["smoke"] == 6
    assert sizes["cifar10"] == sizes["mnist"] == sizes["fashion_mnist"] == 4 * 5 * 3
    five = ("naive", "batch_norm", "lr_scaling", "lr_scaling_warmup", "lamb")
    assert load_sweep("cifar10").techniques == five
    assert set(load_sweep("cifar10_local").techniques) < set(five)
    assert load_sweep("quickstart").techniques == tuple(t for t in five if t != "lr_scaling")


def test_the_course_as_logged_takes_its_steps_at_its_rates() -> None:
    configs = load_sweep("course_as_logged").configs
    told = {
        (c.technique.name, c.gpus, plan.total_steps, plan.warmup_steps, plan.rate(35))
        for c in configs
        for plan in [plan_of(c, 50_000)]
    }
    assert told == {
        ("naive", 1, 72, 0, 0.001), ("naive", 1, 36, 0, 0.001), ("naive", 2, 36, 0, 0.001),
        ("lr_scaling", 1, 36, 0, 0.002), ("lr_scaling", 2, 36, 0, 0.002),
        ("lr_scaling_warmup", 1, 36, 9, 0.002), ("lr_scaling_warmup", 2, 36, 9, 0.002),
        ("lamb", 2, 36, 9, 0.002),
    }  # fmt: skip
    assert {c.partition for c in configs if c.repeats} == {"same"}
    assert sum(c.repeats for c in configs) == 3
    kept = {c.technique.bn_momentum for c in configs if c.technique.normalisation != "none"}
    assert kept == {0.99}
    for name in ("lr_scaling", "lr_scaling_warmup"):
        own = [c for c in configs if c.technique.name == name and c.gpus == 1]
        seeds = {c.seed for c in own if c.technique.bn_statistics == "moving"}
        assert seeds == set(range(10))


@pytest.mark.parametrize("name", [n for n in names_in(sweeps.SWEEPS) if n.endswith("_search")])
def test_no_search_tries_a_cell_twice(name: str) -> None:
    rows = load_techniques()
    file = parse(load_yaml(find_file("sweep", name, sweeps.SWEEPS)), rows)
    assert len(expand(file, rows)) == len(load_sweep(name).configs)


def test_the_layerwise_search_is_the_other_one_for_the_corrected_rows() -> None:
    def shape(config: RunConfig) -> dict[str, Any]:
        own = config.model_dump(exclude={"technique"})
        rules = config.technique.model_dump(exclude={"base_lr", "optimizer"})
        return own | rules

    new = load_sweep("cifar10_layerwise_search").configs
    old = [c for c in load_sweep("cifar10_search").configs if c.technique.name in ("lars", "larc")]
    assert {c.technique.name for c in new} == {"lars", "larc"}
    assert all(shape(c) in [shape(o) for o in old] for c in new)
    assert {c.seed for c in new}.isdisjoint({0, 1, 2})
    assert not {c.cell_id() for c in new} & {c.cell_id() for c in old}


def test_the_technique_sweep_emulates_sixteen_ranks() -> None:
    configs = load_sweep("cifar10_techniques").configs
    shapes = {(c.gpus, c.batch_per_rank, c.accumulation, c.global_batch) for c in configs}
    assert shapes == {(2, 256, 1, 512), (2, 256, 8, 4096)}
    assert {c.seed for c in configs} == {0, 1, 2}
    needed = {
        "naive", "batch_norm", "ghost_batch_norm", "lr_scaling", "lr_scaling_warmup",
        "sqrt_scaling", "lamb", "lars", "larc", "novograd", "muon", "tuned",
    }  # fmt: skip
    assert needed <= {c.technique.name for c in configs}
    # 20,000 images at least, the courses' 12 epochs, one base for all
    assert {(c.data_fraction * 50_000, c.epochs) for c in configs} == {(20_000, 12)}
    assert {c.technique.base_batch for c in configs} == {256}


def test_the_rates_of_optimizers_are_the_best_that_were_searched() -> None:
    """All that the sweep lists was tried, and nothing else; the log says what it gave."""
    log = pd.read_csv(ROOT / "docs" / "searches" / "optimizers.csv")
    tried = {(row.technique, row.base_lr) for row in log.itertuples()}
    listed = {(c.technique.name, c.technique.base_lr)
              for c in load_sweep("cifar10_search").configs}  # fmt: skip
    assert tried == listed and len(log) == len(tried)
    assert log["technique"].value_counts().to_dict() == {
        "sqrt_scaling": 5, "lamb": 5, "lars": 5, "larc": 6, "novograd": 6, "muon": 5,
    }  # fmt: skip
    accuracy = log.set_index(["technique", "base_lr"])["validation_accuracy"]
    best = accuracy.drop(["lars", "larc"]).groupby("technique").idxmax()  # as they were then
    cells = load_sweep("cifar10_techniques").configs
    used = {c.technique.name: c.technique.base_lr for c in cells}
    for technique, place in best.drop("sqrt_scaling").items():
        assert place == (technique, used[technique])
    # rows of Adam differ in their rule alone, and what that costs is what the sweep's file says
    assert {c.technique.base_lr for c in cells if c.technique.optimizer.name == "adam"} == {0.001}
    behind = accuracy[best["sqrt_scaling"]] - accuracy["sqrt_scaling", 0.001]
    assert round(behind, 3) == 0.005
    assert (accuracy["sqrt_scaling"] > accuracy["sqrt_scaling", 0.001]).sum() == 1


def test_the_rates_of_lars_and_larc_are_the_best_that_were_searched() -> None:
    log = pd.read_csv(ROOT / "docs" / "searches" / "layerwise.csv")
    keys = ["technique", "base_lr", "trust", "rest_rate"]

    def settings(sweep: str) -> list[tuple[Any, ...]]:
        found = ((c.technique, c.technique.optimizer) for c in load_sweep(sweep).configs)
        return [(t.name, t.base_lr, getattr(o, "trust", None) if t.name == "larc" else None,
                 getattr(o, "rest_rate", None)) for t, o in found]  # fmt: skip

    def tried(frame: pd.DataFrame) -> set[tuple[Any, ...]]:
        return set(frame[keys].astype(object).where(frame[keys].notna(), None)
                   .itertuples(index=False, name=None))  # fmt: skip

    assert tried(log) == set(settings("cifar10_layerwise_search"))
    apex = log[log["trust"].isna() | (log["trust"] == 0.02)]  # 0.005 is not apex's LARC
    best = log.loc[apex.groupby("technique")["validation_accuracy"].idxmax()]
    used = {cell for cell in settings("cifar10_techniques") if cell[0] in ("lars", "larc")}
    assert tried(best) == used


def test_the_course_s_other_runs() -> None:
    artists = load_sweep("artists").configs
    assert {(c.model, c.batch_per_rank, c.epochs) for c in artists} == {("resnet50", 16, 10)}
    assert {c.gpus for c in artists} == {1, 4, 12}
    wanted = Target(train_accuracy=0.75, validation_accuracy=0.25, held_for=2, within_s=240)
    assert {c.target for c in load_sweep("assessment").configs} == {wanted}
    pairs = {(c.framework, c.gpus) for c in load_sweep("fashion_frameworks").configs}
    assert len(pairs) == 3 * 2


# --- identity of a cell -------------------------------------------------------------------------


def test_the_id_of_a_cell_is_stable() -> None:
    """Finished cells are found again by it: a change here repeats everybody's sweeps."""
    (config,) = load({**COMMON, **NEEDED, "seed": 3}).configs
    assert config.cell_id() == "digits-cnn-naive-g1-s3-e7c6a2"


def test_any_change_of_a_field_is_another_cell() -> None:
    (config,) = load({**COMMON, **NEEDED, "epochs": 12, "dataset": "folder:a"}).configs
    changes: dict[str, Any] = {
        "dataset": "folder:b", "image_size": 64, "model": "resnet_mini", "gpus": 2,
        "scaling": "strong", "batch_per_rank": 31, "epochs": 13, "seed": 1, "data_fraction": 0.5,
        "partition": "whole", "accumulation": 2, "framework": "mirrored",
        "validate_on": "train_part", "target": {"train_accuracy": 0.5}, "deterministic": False,
        "sharpness_images": 8, "steps_per_epoch": 3,
        "technique": {
            "name": "other", "normalisation": "batch_norm", "bn_momentum": 0.8,
            "initialisation": "he", "standardise": True, "label_smoothing": 0.1, "noise_batch": 8,
            "augmentation": {"name": "crop_flip"}, "precision": "mixed_bfloat16",
            "reduction": "adasum", "compression": "fp16", "clip_norm": 1.0, "base_lr": 0.5,
            "base_batch": 7, "lr_scaling": "linear", "warmup_from": "zero",
            "schedule": {"name": "cosine", "final": 0.0}, "batch_growth": {"name": "grow"},
            "regime_adaptation": True,
            "optimizer": {"name": "adam", "beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-7},
        },
    }  # fmt: skip
    # these are refused where what they need is not there, so they come with it
    together: list[dict[str, Any]] = [
        {"normalisation": "batch_norm", "bn_statistics": "reestimated"},
        {"normalisation": "batch_norm", "zero_gamma": True},
        {"normalisation": "ghost_batch_norm", "ghost_batch": 8},
        {"normalisation": "ghost_batch_norm", "ghost_batch": 8, "bn_momentum_per": "batch"},
        {"warmup_epochs": 1.0, "warmup_from": "zero"},
    ]
    whole = json.loads(config.model_dump_json())
    covered = set(changes["technique"]).union(*together)
    of_other_models = {"pretrained", "width", "shortcuts"}
    assert set(changes) == set(whole) - {"schema_version", *of_other_models}
    assert covered == set(whole["technique"])
    variants = [{**whole, key: value} for key, value in changes.items() if key != "technique"]
    normed = {**whole["technique"], "normalisation": "batch_norm"}
    variants.append({**whole, "model": "resnet50", "technique": normed})
    variants.append({**variants[-1], "pretrained": "w.h5"})
    variants += [
        {**whole, "model": "resnet_mini", **one} for one in ({"width": 0.5}, {"shortcuts": False})
    ]
    one_by_one = [{key: value} for key, value in changes["technique"].items()]
    variants += [
        {**whole, "technique": {**whole["technique"], **some}} for some in (*one_by_one, *together)
    ]
    ids = {RunConfig.model_validate_json(json.dumps(item)).cell_id() for item in variants}
    assert len(ids) == len(variants)
    assert config.cell_id() not in ids
