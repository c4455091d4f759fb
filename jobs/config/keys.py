"""The words of a sweep file: keys that a cell can have and the values each one takes.

Both come from the trainer's contract, so that a new field there is a new key here.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from jobs.config.techniques import KINDS, PARAMETERS, as_list, parts_of, spelled_out
from jobs.config.yamlfile import unknown
from train.config.datasets import DATASETS, FOLDER_PREFIX
from train.config.run import RunConfig
from train.config.technique import Technique

_CONTRACT = [k for k in RunConfig.model_fields if k not in ("schema_version", "technique")]
#: Keys of a cell. All but the technique, the two batches and its parameters are RunConfig's own.
CELL_KEYS = ("technique", *_CONTRACT, "global_batch", "base_batch", *PARAMETERS)
#: ``seeds: 3`` stands for ``seed: [0, 1, 2]`` where lists are crossed.
SEEDS = "seeds"
_COUNT = Annotated[int, Field(ge=1)]
_COUNTS = ("global_batch", "base_batch", SEEDS, "cores_per_rank")


def defaults() -> dict[str, Any]:
    """Keys that a cell has without saying so: the contract's, and seed 0."""
    fields = RunConfig.model_fields
    return {k: fields[k].default for k in _CONTRACT if not fields[k].is_required()} | {"seed": 0}


def value_problem(key: str, value: Any, techniques: Collection[str]) -> str | None:
    """Why ``key`` cannot have ``value``, as a sentence; None when it can.

    null unsets a key, so any key takes it.
    """
    if value is None:
        return None
    if key in KINDS:
        return _kind_problem(key, spelled_out(key, value))
    if (names := choices(key, techniques)) is not None:
        if isinstance(value, str) and (value in names or _is_folder(key, value)):
            return None
        shown = (*names, f"{FOLDER_PREFIX}PATH") if key == "dataset" else tuple(names)
        return unknown(key, value, shown)
    if key not in _COUNTS and (parts := parts_of(_field(key).annotation)):
        return _fields_problem(key, value, list(parts[0].model_fields)) or _type_problem(key, value)
    return _type_problem(key, value)


def choices(key: str, techniques: Collection[str]) -> Collection[str] | None:
    """The names that a key takes; None where it takes numbers or free text."""
    if key == "technique":
        return techniques
    if key == "dataset":
        return tuple(DATASETS)
    if key in KINDS:
        return tuple(kind.model_fields["name"].default for kind in KINDS[key])
    annotation = _field(key).annotation if key not in _COUNTS else int
    return get_args(annotation) if get_origin(annotation) is Literal else None


def _is_folder(key: str, value: str) -> bool:
    return key == "dataset" and value.startswith(FOLDER_PREFIX) and value != FOLDER_PREFIX


def _kind_problem(key: str, value: Any) -> str | None:
    """Without a name it changes numbers of the technique's own kind, checked later."""
    kinds = {kind.model_fields["name"].default: kind for kind in KINDS[key]}
    if not isinstance(value, dict):
        return f"{key}: expected one of {', '.join(kinds)} or {{name: ..., ...}}, found {value!r}"
    name = value.get("name")
    if name is not None and name not in kinds:
        return unknown(key, name, kinds)
    meant = [kinds[name]] if name else list(kinds.values())
    known = list(dict.fromkeys(field for kind in meant for field in kind.model_fields))
    problem = _fields_problem(key, value, known)
    return problem or (_type_problem(key, value) if name else None)


def _fields_problem(key: str, value: Any, known: list[str]) -> str | None:
    if not isinstance(value, dict):
        return f"{key}: expected {{{known[0]}: ..., ...}} of {', '.join(known)}, found {value!r}"
    for field in value:
        if field not in known:
            return f"{key}: {unknown('key', field, known)}"
    return None


def _type_problem(key: str, value: Any) -> str | None:
    try:
        # as JSON, where strict means: no text for a number, no number for a truth value
        _checker(key).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        kind = value.get("name") if isinstance(value, dict) else None
        where = ".".join([key, *(str(part) for part in first["loc"] if part != kind)])
        found = json.dumps(first["input"], ensure_ascii=False)
        text = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        text = "a list" if first["type"] == "tuple_type" else text
        hint = as_list(first) or _unquote(first["input"])
        return f"{where}: expected {text}, found {found}{hint}"
    return None


def _unquote(value: Any) -> str:
    """A quoted number is text; the usual slip gets a hint."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return ""
        return " (write the number without quotes)"
    return ""


def _field(key: str) -> FieldInfo:
    owner = Technique if key in PARAMETERS else RunConfig
    return owner.model_fields[key]


@cache
def _checker(key: str) -> TypeAdapter[Any]:
    if key in _COUNTS:
        return TypeAdapter(_COUNT)
    field = _field(key)
    checked: Any = Annotated[field.annotation, field]
    return TypeAdapter(checked)
