"""Kinds of command-line values."""

from __future__ import annotations

import math
from collections.abc import Callable


def positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    """For argparse's ``type``: a finite number above zero, else its message names the kind."""

    def read(text: str) -> float:
        value = kind(text)
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(text)
        return value

    read.__name__ = f"positive {kind.__name__}"  # what argparse calls it in its message
    return read
