"""Techniques as rows of data: techniques.yaml, checked against the trainer's own contract."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from jobs.config.yamlfile import Document, load_yaml, unknown
from train.config.technique import Technique


def parts_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The contract's types among the alternatives of a field: a schedule is one of four, a target
    is one or null, a number none."""
    found = (annotation, *get_args(annotation))
    return tuple(one for one in found if isinstance(one, type) and issubclass(one, BaseModel))


def finding(model: type[BaseModel], error: Mapping[str, Any]) -> str:
    """One error of pydantic's about a value of ``model``, in words that say what would do."""
    text = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        where = error["loc"]
        return unknown("key", str(where[-1]), known_at(model, where[:-1]))
    if error["type"] == "tuple_type":
        return f"expected a list, found {error['input']!r}{as_list(error)}"
    return text


def as_list(error: Mapping[str, Any]) -> str:
    """How to write what stands alone where a list is expected; '' for any other error."""
    return f": write [{error['input']}]" if error["type"] == "tuple_type" else ""


def findings(model: type[BaseModel], errors: ValidationError) -> str:
    """All of them, one line each: where, what, what was found."""
    lines = []
    for error in errors.errors():
        where = ".".join(str(part) for part in error["loc"]) or "(as a whole)"
        told = error["type"] in ("missing", "value_error", "extra_forbidden", "tuple_type")
        found = "" if told else f" (found {error['input']!r})"
        lines.append(f"  {where}: {finding(model, error)}{found[:200]}")
    return "\n".join(lines)


def known_at(model: type[BaseModel], where: tuple[int | str, ...]) -> tuple[str, ...]:
    """The keys of the contract's part at pydantic's place, where a union's kind is a step, too."""
    parts: tuple[type[BaseModel], ...] = (model,)
    for step in where:
        kinds = [one for one in parts if _name(one) == step]
        fields = [one.model_fields[step] for one in parts if step in one.model_fields]
        parts = tuple(kinds) or tuple(p for field in fields for p in parts_of(field.annotation))
    return tuple(dict.fromkeys(key for one in parts for key in one.model_fields))


def _name(kind: type[BaseModel]) -> Any:
    return kind.model_fields["name"].default if "name" in kind.model_fields else None


TECHNIQUES_FILE = Path(__file__).parent.parent / "techniques.yaml"
#: Fields that a row gives and a sweep may set anew; the name is the row's, the batch the sweep's.
PARAMETERS = tuple(name for name in Technique.model_fields if name not in ("name", "base_batch"))
#: Parameters that are a kind plus its numbers, and the types of the kinds; the name of a kind alone
#: may stand for all its defaults.
KINDS = {
    name: kinds
    for name in PARAMETERS
    if (kinds := parts_of(Technique.model_fields[name].annotation))
}
_FOR_PEOPLE = ("label", "why")


@dataclass(frozen=True)
class TechniqueRow:
    """One row; ``fields`` holds every parameter as JSON would."""

    name: str
    label: str
    why: str
    fields: Mapping[str, Any]

    def settings(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The row's parameters with some set anew.

        A kind (schedule, optimizer, ...) given with its name replaces the row's; without a name it
        changes numbers of the row's own.
        """
        result = dict(self.fields)
        for key, value in changes.items():
            new = spelled_out(key, value)
            keeps_kind = key in KINDS and isinstance(new, dict) and "name" not in new
            result[key] = {**self.fields[key], **new} if keeps_kind else new
        return result


def spelled_out(key: str, value: Any) -> Any:
    """``schedule: cosine`` as ``schedule: {name: cosine}``; anything else as it is."""
    return {"name": value} if key in KINDS and isinstance(value, str) else value


def load_techniques(path: Path = TECHNIQUES_FILE) -> dict[str, TechniqueRow]:
    """All rows by name, in the order of the file.

    Raises:
        ConfigError: with file and line: an unknown key, a missing one, a value out of range.
    """
    document = load_yaml(path)
    return {name: _row(document, name) for name in document.value}


def _row(document: Document, name: str) -> TechniqueRow:
    given = document.value[name]
    if not isinstance(given, dict):
        raise document.error((name,), f"technique {name}: expected fields, found {given!r}")
    for key in given:
        if key not in (*_FOR_PEOPLE, *PARAMETERS):
            raise document.error((name, key), unknown("key", key, (*_FOR_PEOPLE, *PARAMETERS)))
    for key in _FOR_PEOPLE:
        if not isinstance(given.get(key), str):
            raise document.error((name, key), f"technique {name}: expected a text as {key!r}")
    parameters = {k: spelled_out(k, v) for k, v in given.items() if k in PARAMETERS}
    # the base batch is the sweep's to say; any positive number checks the rest
    whole = json.dumps({"name": name, "base_batch": 1, **parameters})
    try:
        technique = Technique.model_validate_json(whole, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        # what is wrong with fields together has no place of its own: the one it names first
        named = [key for key in given if key in first["msg"] and key in PARAMETERS]
        where = first["loc"][:1] or sorted(named, key=first["msg"].find)[:1]
        text = f"technique {name} is against the contract:\n{findings(Technique, error)}"
        raise document.error((name, *where), text) from error
    fields = technique.model_dump(mode="json", include=set(PARAMETERS))
    return TechniqueRow(name, given["label"], given["why"], fields)
