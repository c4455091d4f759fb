"""Techniques as rows of data: techniques.yaml, checked against the trainer's own contract."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jobs.config.yamlfile import load_yaml, parts_of
from train.config.technique import Technique

TECHNIQUES_FILE = Path(__file__).parent.parent / "techniques.yaml"
#: What else a row says; nothing reads it.
FOR_PEOPLE = ("label", "why")
#: Fields that a row gives and a sweep may replace; the name is the row's, the batch the sweep's.
PARAMETERS = tuple(name for name in Technique.model_fields if name not in ("name", "base_batch"))
#: Parameters that are a kind plus its numbers; the name of a kind alone stands for its defaults.
KINDS = tuple(name for name in PARAMETERS if parts_of(Technique.model_fields[name].annotation))


#: Every parameter of a row, as JSON has it.
Row = Mapping[str, Any]


def changed(row: Row, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The row with some of its parameters replaced.

    A kind (schedule, optimizer, ...) given with its name replaces the row's; without a name it
    changes numbers of the row's own.
    """
    result = dict(row)
    for key, value in changes.items():
        new = spelled_out(key, value)
        keeps_kind = key in KINDS and "name" not in new
        result[key] = {**row[key], **new} if keeps_kind else new
    return result


def spelled_out(key: str, value: Any) -> Any:
    """``schedule: cosine`` as ``schedule: {name: cosine}``; anything else as it is."""
    return {"name": value} if key in KINDS and not isinstance(value, dict) else value


@cache
def load_techniques(path: Path = TECHNIQUES_FILE) -> dict[str, Row]:
    """All rows by name, in the order of the file.

    Raises:
        ConfigError: with file and line: an unknown key, a missing one, a value out of range.
    """
    document, rows = load_yaml(path), dict[str, Row]()
    for name, given in document.value.items():
        row = document.mapping(given, (name,), (*FOR_PEOPLE, *PARAMETERS))
        parameters = {key: spelled_out(key, row[key]) for key in row if key in PARAMETERS}
        # the sweep gives the base batch; any positive number checks the rest
        whole = {**parameters, "name": name, "base_batch": 1}
        technique = document.checked(Technique, whole, (name,))
        rows[name] = technique.model_dump(mode="json", include=set(PARAMETERS))
    return rows
