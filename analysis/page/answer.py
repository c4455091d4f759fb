"""One answer, and words that several use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.table import Row, number

Rows = Sequence[Row]
THREE, TWO = number(3), number(2)
#: Names in one sentence; more are counted.
_NAMED = 3


@dataclass(frozen=True)
class Answer:
    """``evidence``: anchor of what shows it. ``numbers``: what the sentence says, for programs."""

    key: str
    question: str
    text: str
    evidence: str = ""
    link: str = "evidence"
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        plain = {name: None if pd.api.types.is_scalar(v) and pd.isna(v) else v
                 for name, v in self.numbers.items()}  # fmt: skip
        return {"key": self.key, "question": self.question, "text": self.text,
                "evidence": self.evidence, "numbers": plain}  # fmt: skip


def some(names: Sequence[str]) -> str:
    """All of a few names; of many the first, and how many more."""
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"


def groups(rows: Rows, by: Sequence[str]) -> list[list[Row]]:
    """Rows that are equal in ``by``, in the order in which they come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in by), []).append(row)
    return list(found.values())


def capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{capital(text)}."
