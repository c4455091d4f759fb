"""Failed cells by cause: told once, however many cells, hosts, ranks and numbers it names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from train.record.run import RunRecord

Told = TypeVar("Told")
#: Of a log's last line; some programs print data there.
MOST_CHARACTERS = 300
_NUMBERS = re.compile(r"0x[0-9a-f]+|\b(?=[a-f]*\d)[0-9a-f]{8,}\b|\[?\d[\d.,:_-]*\]?")
_NODES = re.compile(r"\bon node [\w.-]+|\(on [^()]+\)")


def cause_line(record: RunRecord) -> str:
    """What happened, and the last line of the log where that says more; '' without an error."""
    if record.error is None:
        return ""
    what = record.error.what
    last = next((line.strip() for line in reversed(record.error.log_tail) if line.strip()), "")
    last = last[:MOST_CHARACTERS]
    if last in what:
        return what
    return last if what in last else f"{what}; its log ends: {last}"


def cause_of_line(line: str, record: RunRecord) -> str:
    """The line without what differs between cells of one cause: their names, hosts and numbers."""
    hosts = record.world.hostnames if record.world else ()
    names = {record.cell_id, *hosts, *(host.partition(".")[0] for host in hosts)}
    for name in sorted((name for name in names if name in line), key=len, reverse=True):
        line = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "_", line)
    return _NUMBERS.sub("0", _NODES.sub("on _", line))


def grouped(told: Iterable[Told], key: Callable[[Told], Hashable]) -> list[list[Told]]:
    """Those with equal keys together, the largest group first."""
    groups: dict[Hashable, list[Told]] = {}
    for one in told:
        groups.setdefault(key(one), []).append(one)
    return sorted(groups.values(), key=len, reverse=True)


def read_more(sweep: str, cell: str) -> str:
    """The command that shows all that is known of a cell's end. ``sweep``: as SWEEP= names it."""
    return f"make logs SWEEP={shlex.quote(sweep)} CELL={cell}"
