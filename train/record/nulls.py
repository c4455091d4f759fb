"""The nulls of a record: each needs a reason in ``missing``, under its dotted path."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pydantic import BaseModel

# config: null means "unset" there; error: null means "none"
_NEEDS_NO_REASON = frozenset({"config", "error", "missing"})
_NEVER_NULL = frozenset({str, int, float, bool, datetime})


def null_paths(record: BaseModel, *, whole: bool = False) -> Iterator[str]:
    """Dotted paths of the nulls that need a reason, list positions left out.

    What an older record does not have at all is no null, unless the ``whole`` contract is asked of.
    """
    for name, value in _fields(record, whole=whole):
        if name not in _NEEDS_NO_REASON:
            yield from _nulls(value, name, whole=whole)


def _nulls(value: Any, path: str, *, whole: bool) -> Iterator[str]:
    kind = value.__class__  # compared, since isinstance takes a third of the time of reading
    if value is None:
        yield path
    elif kind is tuple or kind is list:
        for item in value:
            if item.__class__ not in _NEVER_NULL:
                yield from _nulls(item, path, whole=whole)
    elif kind is dict:
        for key, item in value.items():
            yield from _nulls(item, f"{path}.{key}", whole=whole)
    elif hasattr(kind, "model_fields"):
        for name, item in _fields(value, whole=whole):
            yield from _nulls(item, f"{path}.{name}", whole=whole)


def _fields(model: BaseModel, *, whole: bool) -> list[tuple[str, Any]]:
    """Those that may be or hold a null; a record has thousands of others."""
    found = [pair for pair in model.__dict__.items() if pair[1].__class__ not in _NEVER_NULL]
    given = model.model_fields_set
    return found if whole else [pair for pair in found if pair[0] in given]
