"""The lock files: where they are, what they pin, and what the programs here take of `train`."""

from __future__ import annotations

import importlib
import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

LOCKS = Path(__file__).resolve().parent
if str(LOCKS.parent) not in sys.path:  # programs here see only what lies in their own folder
    sys.path.append(str(LOCKS.parent))
#: The table of what each program sees of the user's environment.
table = importlib.import_module("train.environment")
atomic = importlib.import_module("train.record.atomic")
errors = importlib.import_module("train.errors")
open_streams = importlib.import_module("train.program").open_streams
quota = importlib.import_module("train.distributed.quota")


class SetupError(Exception):
    """Set-up cannot go on; the text says what was found, what was expected and what to do."""


def cache_folder() -> Path:
    """What set-up keeps for the next checkout; root's, where nobody else can put something."""
    own = Path.home() / ".cache"
    named = Path(os.environ.get("XDG_CACHE_HOME") or own)
    named = named if named.is_absolute() else own  # as the XDG specification says
    inside = (named / "horoscale" / "wheels", named / "horoscale", named)
    if os.geteuid() == 0 and not all(map(_is_roots, (*inside, *named.parents))):
        return own / "horoscale"
    return named / "horoscale"


def _is_roots(folder: Path) -> bool:
    """Whether others can put nothing there in a name's place; in a sticky one, as /tmp, they can
    not where the name is there."""
    if not folder.exists():
        return True
    found = folder.stat()
    safe = not found.st_mode & 0o022 or (found.st_mode & stat.S_ISVTX and folder.name == "tmp")
    return found.st_uid == 0 and bool(safe)


def lock_file(part: str) -> Path:
    return LOCKS / "locks" / f"{part}.lock"


def entries(text: str) -> dict[str, str]:
    """The entries of a lock by package: each with its hashes, without comments."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.strip()[:1] in ("#", ""):
            continue
        if line[:1] != " ":
            name = re.split(r"[=\[ ]", line, maxsplit=1)[0]
            found[name] = ""
        found[name] += line + "\n"
    return found


def joined(locked: Mapping[str, str], *without: str) -> str:
    """Entries as the text of a lock, without those of some packages."""
    return "".join(entry for name, entry in sorted(locked.items()) if name not in without)


def version(requirements: str, package: str) -> str:
    """The version that a lock's text pins for a package."""
    if entry := entries(requirements).get(package):
        return entry.split()[0].partition("==")[2]
    raise SetupError(f"The lock files do not pin {package}: run `make lock`")


def only_horovod() -> str:
    """The entry of Horovod, which is installed from a wheel that is compiled here."""
    return entries(lock_file("ranks").read_text())["horovod"]
