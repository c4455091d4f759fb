"""Files that users name: a word for one of our own folder's, or a path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jobs.suggest import unknown
from train.errors import ConfigError

SUFFIXES = (".yaml", ".yml")


def names_in(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*") if path.suffix in SUFFIXES)


def find_file(kind: str, name_or_path: str, folder: Path, words: Sequence[str] = ()) -> Path:
    """``kind``: what the file is called in messages; ``words``: names that stand for no file.

    Raises:
        ConfigError: there is none; with the names that there are, and the nearest.
    """
    if os.sep in name_or_path or name_or_path.endswith(SUFFIXES):
        path = Path(name_or_path).expanduser()
        if not path.exists():
            known = ", ".join(names_in(folder)) or "(none)"
            raise ConfigError(f"no {kind} file {path}; {kind}s known by name: {known}")
        return path
    for suffix in SUFFIXES:
        path = folder / f"{name_or_path}{suffix}"
        if path.exists():
            return path
    raise ConfigError(
        f"{unknown(kind, name_or_path, [*words, *names_in(folder)])}. "
        f"A {kind} is a file under {folder}, or any path that ends in .yaml"
    )
