"""Networks and weights that a sweep file names: by content in configs, refused with their line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.cell.needs import binds_of, needs_of
from jobs.cell.state import keep_networks
from jobs.config.load import load_sweep
from jobs.config.sweep import Sweep
from jobs.plan.estimate import Rate, rate_key
from jobs.plan.rows import plan_rows
from jobs.plan.text import plan_lines
from tests.builders import refusal

BUILD = "def build(input_shape, classes):\n    return None\n"
COMMON = {"dataset": "cifar10", "epochs": 4, "batch_per_rank": 32, "gpus": 1, "technique": "naive"}
MOBILE = "keras.applications.MobileNetV2"
Load = Callable[..., Sweep]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Of a sweep file with a network in nets/vit.py, and a data folder."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "vit.py").write_text(BUILD)
    (tmp_path / "data").mkdir()

    def load(**keys: Any) -> Sweep:
        content = {key: value for key, value in (COMMON | keys).items() if value is not None}
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return load_sweep(str(file), data=tmp_path / "data")

    return load


def test_a_matrix_over_networks(load: Load) -> None:
    """Rules see the names as the file has them, configs the content and no path."""
    models = ["cnn", MOBILE, "nets/vit.py:build"]
    sweep = load(matrix={"model": models, "seed": [0, 1]}, exclude={"model": models[2], "seed": 1})
    own = f"vit.py:build@{sha256(BUILD)}"
    assert [c.model for c in sweep.configs] == ["cnn"] * 2 + [MOBILE] * 2 + [own]
    assert sweep.configs[4].cell_id().startswith("cifar10-vit-naive-g1-s0-")
    assert sweep.networks == {sha256(BUILD): BUILD.encode()}


@pytest.mark.parametrize("where", ["nets/../nets/vit.py", "TOP/nets/vit.py", "~/nets/vit.py"])
def test_where_a_network_lies_is_no_part_of_a_cell(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (cell,) = load(model=f"{where.replace('TOP', str(tmp_path))}:build").configs
    assert [cell] == list(load(model="nets/vit.py:build").configs)


def test_weights_are_named_by_content_where_the_network_is_ones_own(
    load: Load, tmp_path: Path
) -> None:
    (tmp_path / "w.h5").write_text("weights")
    sweep, data = load(model=MOBILE, pretrained="../w.h5"), tmp_path / "data"
    assert sweep.configs[0].pretrained == f"../w.h5@{sha256('weights')}"
    needs = needs_of(sweep, results=tmp_path / "r", data=data, store=data / "prepared")
    assert str(tmp_path / "w.h5") in binds_of(needs)
    ours = load(model="resnet50", technique="batch_norm", pretrained="w.h5")
    assert [c.pretrained for c in ours.configs] == ["w.h5"], "as in earlier records"


@pytest.mark.parametrize(
    ("keys", "line", "words"),
    [
        ({"model": "nets/no.py:build"}, 6, r"no\.py found unreadable \(No such file.*relative"),
        ({"model": "nets/vit.py:biuld"}, 6, "unknown function 'biuld'; did you mean 'build'"),
        ({"model": f"{MOBILE}2"}, 6, "MobileNetV22.; did you mean 'MobileNetV2'"),
        ({"model": "nets/vit.py"}, 6, r"unknown model 'nets/vit\.py'; expected .*FILE\.py:FUNC"),
        ({"model": "nets/text.py:build"}, 6, r"nets/text\.py:2: no Python"),
        ({"model": "nets/latin.py:build"}, 6, r"nets/latin\.py:3: no Python: .*'utf-8'.* 0xe9"),
        ({"model": MOBILE, "pretrained": "no.h5"}, 7, r"no\.h5 found unreadable .*DATA=DIR"),
        ({"model": MOBILE, "initialisation": "he"}, 7, "initialisation are for the built-in"),
        ({"model": MOBILE, "bn_momentum": 0.8}, 7, "bn_momentum 0.8: .*runs as built"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(
    load: Load, tmp_path: Path, keys: dict[str, Any], line: int, words: str
) -> None:
    (tmp_path / "nets" / "text.py").write_text("x = 1\nhello world\n")
    (tmp_path / "nets" / "latin.py").write_bytes(b"# a\n# b\nname = 'caf\xe9'\n")
    text = refusal(lambda: load(**keys))
    assert text.startswith(f"{tmp_path}/mine.yaml:{line}: ")
    assert re.search(words, text), text


@pytest.mark.parametrize(
    "text",
    [
        "build = make\n",
        "from keras import x as build\n",
        "if 1:\n    def build(): ...\n",
    ],
)
def test_a_function_may_be_defined_in_any_way(load: Load, tmp_path: Path, text: str) -> None:
    """The file is never run here: a login node has no TensorFlow. Windows' editors put a mark in
    front of it."""
    (tmp_path / "nets" / "vit.py").write_text(f"\ufeffimport tensorflow\n1 / 0\n{text}")
    assert len(load(model="nets/vit.py:build").configs) == 1


@pytest.mark.parametrize(
    ("techniques", "kept", "words"),
    [
        (["naive", "batch_norm", "lamb"], ["naive", "lamb"], "batch_norm is left out for vit"),
        # the reference stays, wherever it stands
        (["batch_norm", "lamb", "naive"], ["lamb", "naive"], "the same condition as naive"),
        (["batch_norm", "ghost_batch_norm"], ["batch_norm", "ghost_batch_norm"], None),
    ],
)
def test_rows_that_change_nothing_of_an_own_network_are_left_out(
    load: Load, techniques: list[str], kept: list[str], words: str | None
) -> None:
    axes = {"technique": techniques, "seeds": 2}
    sweep = load(model="nets/vit.py:build", technique=None, matrix=axes)
    assert list(sweep.techniques) == [c.technique.name for c in sweep.configs][::2] == kept
    assert [words] == [words for text in sweep.remarks if words in text] if words else True
    assert len(sweep.remarks) == (words is not None)
    ours = load(model="cnn", technique=None, matrix=axes)
    assert len(ours.configs) == 2 * len(techniques) and not ours.remarks


def test_all_seeds_of_a_condition_have_one_name(load: Load) -> None:
    axes = {"technique": ["naive", "batch_norm"], "seeds": 3}
    without = {"technique": "naive", "seed": [1, 2]}
    sweep = load(model="nets/vit.py:build", technique=None, matrix=axes, exclude=without)
    assert [(c.technique.name, c.seed) for c in sweep.configs] == [("naive", s) for s in range(3)]
    read = [type(c).model_validate_json(c.model_dump_json()) for c in sweep.configs]
    assert [c.cell_id() for c in sweep.configs] == [c.cell_id() for c in read]
    assert sweep.techniques == ("naive",) and len(sweep.remarks) == 1


def test_networks_lie_where_a_linked_sweep_file_does(load: Load, tmp_path: Path) -> None:
    (cell,) = load(model="nets/vit.py:build").configs
    (tmp_path / "links").mkdir()
    (link := tmp_path / "links" / "mine.yaml").symlink_to(tmp_path / "mine.yaml")
    assert load_sweep(str(link)).configs == (cell,)


def test_cells_keep_the_copy_of_their_file(load: Load, tmp_path: Path) -> None:
    """The copy is all that ranks read: below the folder of results, which is bound."""
    folder, source = tmp_path / "results" / "mine", tmp_path / "nets" / "vit.py"
    first = load(model="nets/vit.py:build")
    keep_networks(first, folder)
    copy = folder / "models" / f"{sha256(BUILD)}.py"
    at = copy.stat().st_mtime_ns
    source.write_text(BUILD + "# edited\n")
    second = load(model="nets/vit.py:build")
    assert first.configs[0].cell_id() != second.configs[0].cell_id()
    for sweep in (first, second):
        keep_networks(sweep, folder)
    assert copy.read_text() == BUILD and copy.stat().st_mtime_ns == at
    assert len(list(folder.glob("models/*"))) == 2
    copy.write_text("spoilt")
    keep_networks(first, folder)
    assert copy.read_text() == BUILD
    data = tmp_path / "data"
    needs = needs_of(first, results=folder, data=data, store=data / "prepared")
    assert str(copy) in [need.path for need in needs]
    assert binds_of(needs) == (str(folder), str(data))


def test_a_plan_has_labels_and_no_time_before_a_cell_of_the_network_ran(load: Load) -> None:
    """naive and batch_norm take the same time on a network that runs as built."""
    own, other = (load(model="nets/vit.py:build", technique=name).configs[0]
                  for name in ("naive", "batch_norm"))  # fmt: skip
    images = {("cifar10", None): 1437}
    ours = {rate_key(load(model="cnn").configs[0]): Rate(100.0, 1.0, 1.0, 1)}
    text = "\n".join(plan_lines(plan_rows([own], images, ours), {}))
    assert "1 cells: vit on cifar10;" in text and "time unknown: no cell like these ran" in text
    row = plan_rows([own], images, {rate_key(other): Rate(100.0, 1.0, 1.0, 1)})[0]
    assert row.time.seconds is not None
