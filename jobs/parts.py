"""Types of the contract that stand for several keys at once."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel


def parts_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The contract's types among the alternatives of a field: a schedule is one of four, a target
    is one or null, a number none."""
    found = (annotation, *get_args(annotation))
    return tuple(one for one in found if isinstance(one, type) and issubclass(one, BaseModel))
