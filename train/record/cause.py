"""Why a cell ended badly, in one line, and which lines have one cause."""

from __future__ import annotations

import re
from collections.abc import Collection

from train.record.run import RunError

#: Of a log's last line; some programs print data there.
MOST_CHARACTERS = 300
_NUMBERS = re.compile(
    r"0x[0-9a-f]+|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b(?=[a-f]*\d)[0-9a-f]{6,}\b|\[?\d[\d.,:_-]*\]?"
)
_NUMBERED = r"[\w.-]*(?:\[\d[\d,-]*\]|\d(?:[\w.,-]*\w)?(?:\[\d[\d,-]*\])?)"
_PIECES = re.compile(
    # a path; nodes as Slurm and the supervisor name them
    r"""(?P<place>(?<![\w.])~?/[^\s"'<>|;,()]*[\w/]|(?<=\(on\ )[^()]+|(?<=\bon\ node\ )[\w.-]*\w)"""
    rf"|(?P<words>{_NUMBERED}(?:,\ {_NUMBERED})*|[\w.-]*\w)|.",
    re.DOTALL,
)


def cause_line(error: RunError | None) -> str:
    """What happened, and the last line of the log where that says more; '' without an error."""
    if error is None:
        return ""
    last = next((line.strip() for line in reversed(error.log_tail) if line.strip()), "")
    last = last[:MOST_CHARACTERS]
    if last in error.what:
        return error.what
    return last if error.what in last else f"{error.what}; its log ends: {last}"


def pieces(line: str, cell_id: str, hosts: Collection[str]) -> list[tuple[str, str]]:
    """The line piece by piece, each with what stands for it in a cause.

    Lines of one cause differ only in the cell, its hosts, numbers, ids and paths.
    """
    names = {cell_id, *hosts, *(host.partition(".")[0] for host in hosts)}
    return [(piece[0], _stands_for(piece, names)) for piece in _PIECES.finditer(line)]


def _stands_for(piece: re.Match[str], names: Collection[str]) -> str:
    if piece["place"]:
        return "_"
    if not piece["words"]:
        return piece[0]
    # several nodes, or one
    words = ("_" if word in names else _NUMBERS.sub("0", word) for word in piece[0].split(", "))
    return ", ".join(dict.fromkeys(words))
