"""Raw files that were found for a data set: how the prepared form is called, how to decode them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from train.data.arrays import Dataset

#: Raised whenever the same raw files would give other arrays; prepared forms of old stay unused.
FORMAT = 1


@dataclass(frozen=True)
class Source:
    """``<slug>-<key>`` names the prepared form; another key, another content."""

    slug: str
    key: str
    decode: Callable[[], Dataset]

    @property
    def folder_name(self) -> str:
        return f"{self.slug}-{self.key}"


def key_of(*parts: object) -> str:
    """12 hex digits of a hash over JSON values and the format version."""
    text = json.dumps([FORMAT, *parts], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def stat_key(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Name, size in bytes and time of change in ns of each file: a changed file is a new key."""
    found = ((file.name, file.stat()) for file in files)
    return [(name, status.st_size, status.st_mtime_ns) for name, status in found]
