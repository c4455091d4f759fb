"""Which files a program opens, for tests of what a look costs the file server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened(folder: Path) -> Iterator[list[str]]:
    """Names of the files below the folder that are opened meanwhile, or were to be."""
    found: list[str] = []
    hearing = True

    def hear(event: str, args: tuple[object, ...]) -> None:
        if hearing and event == "open" and isinstance(args[0], str | os.PathLike):
            path = Path(args[0])
            if path.is_relative_to(folder):
                found.append(path.name)

    sys.addaudithook(hear)  # for good
    try:
        yield found
    finally:
        hearing = False
