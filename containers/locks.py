"""The lock files: where they are, what they pin, and Horovod's entry apart from the rest."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

LOCKS = Path(__file__).resolve().parent
#: Settings of pip, and of uv for the same.
UV_NAMES = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS", "PIP_NO_INDEX": "UV_NO_INDEX",
    "PIP_TRUSTED_HOST": "UV_INSECURE_HOST", "PIP_CERT": "SSL_CERT_FILE",
    "PIP_CLIENT_CERT": "SSL_CLIENT_CERT", "PIP_PROXY": "ALL_PROXY",
    "PIP_DEFAULT_TIMEOUT": "UV_HTTP_TIMEOUT", "PIP_TIMEOUT": "UV_HTTP_TIMEOUT",
    "PIP_CACHE_DIR": "UV_CACHE_DIR", "PIP_NO_CACHE_DIR": "UV_NO_CACHE",
}  # fmt: skip


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


def uv_settings(pip: Mapping[str, str]) -> dict[str, str]:
    """The way to packages that pip's variables name, as those of uv; where both are set, uv's own
    count."""
    found = {own: pip[name] for name, own in UV_NAMES.items() if pip.get(name)}
    # as pip does: all indexes count alike; hashes decide what gets in
    found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if "UV_FIND_LINKS" in found:
        found["UV_FIND_LINKS"] = ",".join(found["UV_FIND_LINKS"].split())
    if "UV_CACHE_DIR" in found:
        found["UV_CACHE_DIR"] += "/uv"
    return found


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


def pinned(part: str, package: str) -> str:
    for line in lock_file(part).read_text().splitlines():
        if line.startswith(f"{package}=="):
            return line.split("==")[1].split()[0]
    raise SetupError(f"{lock_file(part)} does not pin {package}: run `make lock`")
