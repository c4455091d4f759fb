"""Types of the contract that stand for several keys at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from jobs.suggest import unknown


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
