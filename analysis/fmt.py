"""How numbers and words are written, in tables and sentences alike; a null is n/a."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import pandas as pd

NOT_AVAILABLE = "n/a"
#: Smaller numbers are what is left of a zero.
_ROUNDING = 1e-12
_MOST_DECIMALS = 6
#: Names in one sentence, and rows in one answer; more are counted.
_NAMED = 3


def number(digits: int, sign: Literal["", "+"] = "") -> Callable[[Any], str]:
    """Writes fixed digits, thousands apart, n/a for a null; a number that these digits would round
    to zero with one significant digit, and one that they would round to 1 so that it is not 1."""
    return lambda value: NOT_AVAILABLE if pd.isna(value) else _fixed(float(value), digits, sign)


def signed(digits: int) -> Callable[[Any], str]:
    """As :func:`number`, of a difference."""
    return number(digits, "+")


def _fixed(value: float, digits: int, sign: str = "", whole: float = 1.0) -> str:
    """``whole``: 100 of a percentage."""
    if abs(value) < _ROUNDING:
        value = 0.0  # of either sign
    text = f"{value:{sign},.{digits}f}"
    if value != 0 and not text.strip("+-0."):
        return f"{value:{sign}.1g}"
    away = round(abs(abs(value) - whole), 12)
    if away and abs(float(text.replace(",", ""))) == whole:
        return f"{value:{sign}.{-math.floor(math.log10(away))}f}"
    return text


def significant(value: Any, digits: int = 3) -> str:
    """At least ``digits`` significant digits, whole numbers never rounded away."""
    if pd.isna(value):
        return NOT_AVAILABLE
    size = abs(float(f"{value:.{digits}g}"))  # as it is written: 99.99 has no decimals
    if not math.isfinite(size):
        return "∞"
    decimals = 0
    while 0 < size < 10 ** (digits - 1 - decimals):
        decimals += 1
    form = f",.{decimals}f" if decimals <= _MOST_DECIMALS else f".{digits}g"
    return f"{float(value):{form}}"


def count(value: Any) -> str:
    return NOT_AVAILABLE if pd.isna(value) else f"{int(value):,}"


def percent(value: Any) -> str:
    return NOT_AVAILABLE if pd.isna(value) else f"{_fixed(100 * float(value), 0, whole=100)} %"


def signed_percent(value: Any) -> str:
    """As :func:`percent` with one digit, of a difference."""
    return NOT_AVAILABLE if pd.isna(value) else f"{_fixed(100 * float(value), 1, '+', 100)} %"


def p_value(p: Any) -> str:
    if pd.isna(p):
        return NOT_AVAILABLE
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)


def joined(parts: Iterable[str], by: str = " ") -> str:
    return by.join(part for part in parts if part)


def first_of(parts: Sequence[str], most: int, by: str = ", ") -> str:
    """``a, b and 3 more``: all of a few; of many the first, and how many more."""
    return by.join(parts[:most]) + (f" and {len(parts) - most} more" if parts[most:] else "")


def by_number(name: str) -> list[tuple[str, float]]:
    """Sorts node2 before node10, 10.0.0.2 before 10.0.0.10, and numbers as labels write them: 16,
    1,024, 0.05, 5e-05."""
    return [
        (text, float(part.replace(",", "") or 0))
        for text, part in re.findall(
            r"(\D*)((?<!\.)\d+(?:,\d{3})*(?:\.\d+(?![\d.]))?(?:e[+-]?\d+)?|\d*)", name
        )
    ]


def runs(n: int) -> str:
    return counted(n, "run")


def some(names: Sequence[str]) -> str:
    """In a sentence."""
    return first_of(names, _NAMED)


def few(said: Sequence[str]) -> list[str]:
    """In an answer; its table has the others."""
    more = len(said) - _NAMED
    return [*said[:_NAMED], *([f"{more} more in the table"] if more > 0 else [])]


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{capital(text)}."


THREE, TWO, SIGNED = number(3), number(2), signed(3)
