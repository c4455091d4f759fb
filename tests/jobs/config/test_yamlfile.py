"""YAML read strictly, with a line for every value; the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.yamlfile import MAX_BYTES, load_yaml
from tests.builders import refusal
from train.errors import unknown


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "file.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_values_and_lines(tmp_path: Path) -> None:
    text = "# comment\na: 1\nb:\n  - x\n  - {c: 2.5, d: true}\ne: ~\nf: {}\n"
    document = load_yaml(write(tmp_path, text))
    assert document.value == {"a": 1, "b": ["x", {"c": 2.5, "d": True}], "e": None, "f": {}}
    lines = [document.line(path) for path in [("a",), ("b",), ("b", 0), ("b", 1, "d"), ("e",)]]
    assert lines == [2, 3, 4, 5, 6]
    # of what is not there, the line of what is around it
    assert [document.line(path) for path in [(), ("b", 7), ("f", "x"), ("a", "y")]] == [1, 3, 7, 2]
    assert str(document.error(("b", 0), "wrong")) == f"{document.source}:4: wrong"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("50_000", 50_000), ("no", "no"), ("on", "on"), ("1:30", "1:30"),
        ("2024-01-02", "2024-01-02"), ("True", True), ("", None), ("'2'", "2"), ("&name 5", 5),
        (">\n  two\n  lines", "two lines\n"),
    ],
)  # fmt: skip
def test_plain_values_mean_what_yaml_1_2_says(tmp_path: Path, text: str, value: object) -> None:
    read = load_yaml(write(tmp_path, f"key: {text}\n")).value["key"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "expected 'key: value' lines"),
        ("a: 1\n---\nb: 2\n", "another document"),
        ("a: {b: 1\nc: 2\n", "file.yaml:2: not YAML"),
        ("a: 1\n2: a\n", "file.yaml:2: not YAML: expected a name as key, found 2"),
        ("a: 1\nb:\n  c: 1\n  c: 3\n", 'file.yaml:4: not YAML: while constructing a mapping, found '
         'duplicate key "c" with value "3" (original value: "1")'),
        ("a: !!python/object/apply:os.system [ls]\n", "file.yaml:1: not YAML: could not"),
        ("a: !!binary aGk=\n", "bytes is not JSON"),
        ("a: !!float no\n", "not YAML: could not convert"),
        (b"a: \xff\n", "invalid start byte"),
        ("a: \x07\n", "not YAML: unacceptable character"),
        ("a: &a [*a]\n", "not YAML: Circular reference"),
        pytest.param("a: " + "[" * 1_500, "nested too deep", id="deep"),
        pytest.param(b"#" * (MAX_BYTES + 1), "larger than 1,000,000 bytes", id="large"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    text = refusal(load_yaml, write(tmp_path, content))
    assert "file.yaml" in text
    assert said in text


def test_anchors_and_merge_keys(tmp_path: Path) -> None:
    text = (
        "base: &base {x: 1, y: 2}\n"
        "more: &more {y: 3, z: 4}\n"
        "both:\n"
        "  x: 9\n"
        "  <<: [*base, *more]\n"
        "list: [*base, *base]\n"
    )
    document = load_yaml(write(tmp_path, text))
    # the merged-in keys lose against own ones wherever '<<' stands; of several, the first wins
    assert document.value["both"] == {"x": 9, "y": 2, "z": 4}
    assert document.value["list"] == [{"x": 1, "y": 2}] * 2
    assert document.line(("both", "z")) == 2  # where it is written
    assert document.line(("both", "x")) == 4


def test_the_nearest_name() -> None:
    assert unknown("model", "RESNET50", ["cnn", "ResNet_50"]) == (
        "unknown model 'RESNET50'; did you mean 'ResNet_50'? known: cnn, ResNet_50"
    )
    # files of both names may be there
    assert unknown("sweep", "Aa", ["a", "A"]).endswith("known: a, A")
    assert unknown("model", "qqqq", ["cnn"]) == "unknown model 'qqqq'; known: cnn"
    assert unknown("model", 5, []) == "unknown model 5; known: (none)"
