"""Lists in frames: their entries stay apart, and only what writes a value joins them, by str()."""

from __future__ import annotations

import json
from typing import Any


class Names(tuple[str, ...]):
    """With blanks between them."""

    __slots__ = ()
    BY = " "

    def __str__(self) -> str:
        return self.BY.join(self)


class Alarms(Names):
    __slots__ = ()
    BY = " | "


class Context(Names):
    """Settings in words."""

    __slots__ = ()
    BY = ", "


class Versions(tuple[tuple[str, str], ...]):
    """(package, version); written as JSON."""

    __slots__ = ()

    def __str__(self) -> str:
        return key(dict(self)) if self else ""


#: Columns of records that hold a list.
LISTS: dict[str, type[tuple[Any, ...]]] = {
    "alarms": Alarms, "hosts": Names, "log_tail": Names, "versions": Versions,
}  # fmt: skip


def key(parts: Any) -> str:
    """Canonical text of some settings, to group by."""
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))
