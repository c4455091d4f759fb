"""The lock files: where they are, what they pin, and Horovod's entry apart from the rest."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

LOCKS = Path(__file__).resolve().parent


class SetupError(Exception):
    """Set-up cannot go on; the text says what was found, what was expected and what to do."""


def errors_of_train() -> ModuleType:
    """What the programs here share with the rest; they see only what lies in their own folder."""
    sys.path.append(str(LOCKS.parent))
    return importlib.import_module("train.errors")


def refusal(error: OSError) -> str:
    """The system's words, and what to do where the error's number tells, as the suite says it."""
    todo = errors_of_train().remedy(error)
    return f"{error}. {todo.capitalize()}" if todo else str(error)


def lock_file(part: str) -> Path:
    return LOCKS / "locks" / f"{part}.lock"


def without_horovod(text: str) -> str:
    """The lock's text without Horovod's entry, which is installed from our own wheel."""
    kept, skipping = [], False
    for line in text.splitlines():
        if line[:1] not in (" ", "#", ""):
            skipping = line.startswith("horovod==")
        if not skipping:
            kept.append(line)
    return "\n".join(kept) + "\n"


def only_horovod(text: str) -> str:
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("horovod=="))
    end = next((i for i in range(start + 1, len(lines)) if lines[i][:1] != " "), len(lines))
    return "\n".join(lines[start:end]) + "\n"


def pinned(part: str, package: str) -> str:
    for line in lock_file(part).read_text().splitlines():
        if line.startswith(f"{package}=="):
            return line.split("==")[1].split()[0]
    raise SetupError(f"{lock_file(part)} does not pin {package}: run `make lock`")
