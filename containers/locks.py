"""The lock files: where they are, what they pin, and Horovod's entry apart from the rest."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

LOCKS = Path(__file__).resolve().parent


class SetupError(Exception):
    """Set-up cannot go on; the text says what was found, what was expected and what to do."""


def errors_of_train() -> ModuleType:
    """What the programs here share with the rest; they see only what lies in their own folder."""
    return _of_train("errors")


def environment_of_train() -> ModuleType:
    """The table of what each program sees of the user's environment."""
    return _of_train("environment")


def _of_train(name: str) -> ModuleType:
    if str(LOCKS.parent) not in sys.path:
        sys.path.append(str(LOCKS.parent))
    return importlib.import_module(f"train.{name}")


def pip_environment(pip: Sequence[str]) -> dict[str, str]:
    """What pip sees: the way to packages that its variables and configuration files name, and none
    of their other options (user, target, require-virtualenv, dry-run, ...).

    Raises SetupError where pip cannot read its configuration.
    """
    table = environment_of_train()
    seen = table.environment_of("setup", os.environ)
    # options of that question, too, which files may set: --user would hide the machine's own file
    plain = dict.fromkeys(("PIP_USER", "PIP_GLOBAL", "PIP_SITE", "PIP_QUIET", "PIP_VERBOSE"), "0")
    found = subprocess.run(
        [*pip, "config", "list"], capture_output=True, text=True, check=False,
        env=seen | plain | {"PIP_LOG": os.devnull},
    )  # fmt: skip
    if found.returncode != 0:
        raise SetupError(
            f"pip cannot read its configuration: {found.stderr.strip() or found.stdout.strip()}\n"
            "Correct that file; pip config debug lists all."
        )
    named: dict[str, str] = table.index_settings(found.stdout)
    return named | seen | {"PIP_CONFIG_FILE": os.devnull}


def refusal(error: OSError) -> str:
    """The system's words, and what to do where the error's number tells, as the suite says it."""
    todo = errors_of_train().remedy(error)
    return f"{error}. {todo.capitalize()}" if todo else str(error)


def cache_folder() -> Path:
    """What set-up keeps for the next checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "horoscale"


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


def pins(requirements: str) -> list[str]:
    """The packages that a lock's text names, each as NAME==VERSION."""
    lines = requirements.splitlines()
    return [line.split()[0] for line in lines if line[:1].isalnum() and "==" in line]


def pinned(part: str, package: str) -> str:
    for pin in pins(lock_file(part).read_text()):
        if pin.startswith(f"{package}=="):
            return pin.partition("==")[2]
    raise SetupError(f"{lock_file(part)} does not pin {package}: run `make lock`")
