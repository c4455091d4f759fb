"""YAML read strictly, with a line for every value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobs.config import yamlfile
from jobs.config.yamlfile import load_yaml
from train.errors import ConfigError


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "file.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(folder: Path, text: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        load_yaml(write(folder, text))
    return str(caught.value)


def test_values_and_lines(tmp_path: Path) -> None:
    document = load_yaml(write(tmp_path, "a: 1\nb:\n  - x\n  - {c: 2.5, d: true}\ne: ~\n"))
    assert document.value == {"a": 1, "b": ["x", {"c": 2.5, "d": True}], "e": None}
    lines = [document.line(path) for path in [("a",), ("b",), ("b", 0), ("b", 1, "d"), ("e",)]]
    assert lines == [1, 2, 3, 4, 5]


def test_the_line_of_something_unknown_is_that_of_what_is_around_it(tmp_path: Path) -> None:
    document = load_yaml(write(tmp_path, "# comment\na:\n  b: 1\n"))
    assert document.line(("a", "nowhere", 3)) == 2
    assert document.line(()) == 1
    assert str(document.error(("a", "b"), "wrong")) == f"{document.source}:3: wrong"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("2E3", 2000.0), ("-.5", -0.5), ("1.", 1.0), ("50_000", 50_000),
        ("no", "no"), ("on", "on"), ("1:30", "1:30"), ("010", "010"), ("2024-01-02", "2024-01-02"),
        ("0", 0), ("-7", -7), ("+3", 3), ("1.5.2", "1.5.2"), ("True", True), ("null", None),
        ("", None), ("'2'", "2"), (".", "."), ("e5", "e5"), ("1_0.5", 10.5),
    ],
)  # fmt: skip
def test_plain_values_mean_what_yaml_1_2_says(tmp_path: Path, text: str, value: object) -> None:
    found = load_yaml(write(tmp_path, f"key: {text}\n")).value["key"]
    assert found == value
    assert type(found) is type(value)


def test_infinity_and_nan_are_numbers(tmp_path: Path) -> None:
    value = load_yaml(write(tmp_path, "a: [.inf, -.inf, .NaN]\n")).value["a"]
    assert [str(item) for item in value] == ["inf", "-inf", "nan"]


def test_a_key_given_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    text = refusal(tmp_path, "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    assert "file.yaml:5:" in text
    assert "'c' is there twice (also line 3)" in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("- a\n- b\n", "found a list"),
        ("just text\n", "found 'just text'"),
        ("a: 1\n---\nb: 2\n", "another document"),
        ("a: {b: 1\nc: 2\n", ":2: not YAML"),
        ("a:\n\tb: 1\n", "spaces, not tabs"),
        ("a: *nowhere\n", "undefined alias"),
        ("1: a\n", "expected a name as key, found '1'"),
        ("[a]: b\n", "expected a name as key, found a list"),
        ("a: !!python/object/apply:os.system [ls]\n", "cannot be read"),
        ("a: !!binary aGk=\n", "cannot be read as !!binary"),
        ("a: !mine {b: 1}\n", "not allowed"),
        ("a: !!int no\n", "cannot be read as !!int"),
        (b"a: \xff\n", "not UTF-8"),
        ("a: \x07\n", "not YAML"),
    ],
)
def test_what_is_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    text = refusal(tmp_path, content)
    assert "file.yaml" in text
    assert said in text


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_yaml(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="directory"):
        load_yaml(tmp_path)


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    assert "larger than" in refusal(tmp_path, b"#" * (yamlfile.MAX_BYTES + 1))


def test_aliases_that_stand_for_a_billion_values_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 10):
        lines.append(f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]")
    assert "aliases stand for more" in refusal(tmp_path, "\n".join(lines))


def test_merges_that_stand_for_a_billion_keys_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 {k: 1}"]
    lines += [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}, *a{i - 1}]}}" for i in range(1, 25)]
    assert "aliases stand for more" in refusal(tmp_path, "\n".join(lines))


@pytest.mark.parametrize("content", ["a: &a [*a]\n", "a: &a {b: *a}\n", "a: &a {<<: *a}\n"])
def test_an_alias_of_itself_is_refused(tmp_path: Path, content: str) -> None:
    assert "nested deeper" in refusal(tmp_path, content)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    assert "nested deeper" in refusal(tmp_path, "a: " + "[" * 50_000)
    assert "nested deeper" in refusal(tmp_path, "a: " + "[" * 40 + "]" * 40)


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
    assert document.line(("both", "z")) == 2
    assert document.line(("both", "x")) == 4


def test_two_merge_keys_are_a_key_given_twice(tmp_path: Path) -> None:
    text = refusal(tmp_path, "a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n")
    assert "file.yaml:4: '<<' is there twice" in text


@pytest.mark.parametrize("merged", ["5", "[5]", "text"])
def test_only_mappings_merge(tmp_path: Path, merged: str) -> None:
    assert "'<<' takes a mapping" in refusal(tmp_path, f"a:\n  <<: {merged}\n")


# without digits: PyYAML, of YAML 1.1, writes the text '1e3' as a bare 1e3
TEXT = st.text(st.characters(exclude_categories=("Cs", "Nd")))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, PLAIN, min_size=1, max_size=4))
def test_what_pyyaml_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any]
) -> None:
    path = write(tmp_path_factory.getbasetemp(), yaml.safe_dump(value))
    assert load_yaml(path).value == value
