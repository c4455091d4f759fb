"""The nearest valid name, for messages about a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name most like ``word``, whatever its case; None when none is alike."""
    names = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    return names[found[0]] if found else None


def unknown(kind: str, word: object, known: Iterable[str]) -> str:
    """One sentence: what was found, the nearest valid name, all valid names."""
    names = list(known)
    near = nearest(str(word), names)
    hint = f"did you mean {near!r}? " if near else ""
    return f"unknown {kind} {word!r}; {hint}known: {', '.join(names) or '(none)'}"
