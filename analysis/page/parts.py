"""Parts of a page, made one by one: an error in one is a sentence in its place."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_PROGRAM = Path(__file__).parents[1]


def parts(makers: Iterable[Callable[[], T]], what: str, failures: list[str]) -> tuple[T, ...]:
    """What the makers make; of one that raises, a sentence is appended to ``failures``.

    Args:
        what: one of the parts, at the beginning of a sentence.
    """
    found = []
    for make in makers:
        try:
            found.append(make())
        except Exception as error:  # noqa: BLE001  whatever it is, no other part depends on it
            if (said := _sentence(what, error)) not in failures:
                failures.append(said)
    return tuple(found)


def _sentence(what: str, error: Exception) -> str:
    """Without paths, which an anonymous report may not have."""
    inside = [
        f"{Path(frame.filename).relative_to(_PROGRAM)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_PROGRAM)
    ]
    message = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
    why = f"{type(error).__name__}{f': {message}' if message else ''}"
    return (
        f"{what} could not be made: {why} (analysis/{inside[-1]}). This is a fault of the program: "
        "please report it with this line. The other parts of the report do not depend on it."
    )
