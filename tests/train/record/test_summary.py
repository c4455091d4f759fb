"""The two ends of a record give what the whole gives, and nothing where the whole is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import config, record
from train.errors import RecordError
from train.record import summary as module
from train.record.run import RunError, read_record
from train.record.summary import RecordSummary, read_own_summary, read_summary

CONFIG = config(epochs=60)
#: The text within an error looks like the keys that are looked for.
ERROR = RunError(what='"data": x, "attempts": [', where="x", what_to_do='\\"attempts": [')


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "record.json"
    path.write_text(record(CONFIG, **changes).model_dump_json(indent=2) + "\n")
    assert path.stat().st_size > 2 * module.END_BYTES
    return path


@pytest.mark.parametrize("changes", [{}, {"status": "failed", "error": ERROR}])
def test_the_ends_alone_are_read(
    tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, **changes)
    whole = read_record(path)
    monkeypatch.delattr(module, "read_record")
    found = read_own_summary(tmp_path, CONFIG)
    assert all(getattr(found, key) == getattr(whole, key) for key in RecordSummary.model_fields)


def test_a_record_in_another_form_is_read_as_a_whole(tmp_path: Path) -> None:
    path = write(tmp_path)
    expected = read_summary(path)
    values = json.loads(path.read_text())
    path.write_text(json.dumps(dict(sorted(values.items()))))
    assert read_summary(path) == expected


def test_a_record_that_was_cut_off_is_broken(tmp_path: Path) -> None:
    path = write(tmp_path)
    content = path.read_bytes()
    for size in (*range(0, len(content), 701), *range(len(content) - 400, len(content) - 2)):
        path.write_bytes(content[:size])
        with pytest.raises(RecordError, match="truncated"):
            read_summary(path)
    path.write_bytes(content + b"{")
    with pytest.raises(RecordError, match="not JSON"):
        read_summary(path)


@pytest.mark.parametrize(
    ("found", "instead", "words"),
    [
        ('"schema_version": 1,\n  "cell_id"', '"schema_version": 2,\n  "cell_id"', "2 found"),
        ('"status": "completed",\n  "error"', '"status": "failed",\n  "error"', "no error says"),
        ('"cell_id": "digits', '"cell_id": "mnist', "is not that of the config"),
    ],
)
def test_a_record_that_contradicts_itself_is_broken_in_the_same_words(
    tmp_path: Path, found: str, instead: str, words: str
) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace(found, instead, 1))
    with pytest.raises(RecordError, match=words):
        read_own_summary(tmp_path, CONFIG)


def test_a_record_from_before_a_key_existed_is_ones_own(tmp_path: Path) -> None:
    """What is absent is at its default, in the technique, too."""
    values = json.loads(write(tmp_path).read_text())
    del values["config"]["validate_on"], values["config"]["technique"]["reduction"]
    (tmp_path / "record.json").write_text(json.dumps(values))
    assert read_own_summary(tmp_path, CONFIG).config == CONFIG
