"""Which code runs: the commit of the checkout, and whether it differs from it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

#: What decides a result: the code, its locks and the rows of techniques.
CODE = ("train", "jobs", "containers", "pyproject.toml")
NEW_CODE = ("train/*.py", "jobs/*.py")


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit, and whether the code differs from it; told by the supervisor inside a container.

    A new sweep file or a note beside the code changes no result: a record holds its whole config.
    """
    told = os.environ.get("HOROSCALE_GIT_COMMIT")
    if told:
        return told, os.environ.get("HOROSCALE_GIT_DIRTY") == "1"
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", *CODE)
        new = _git(folder, "ls-files", "--others", "--exclude-standard", "--", *NEW_CODE)
        return commit, bool(changed or new)
    except (OSError, subprocess.CalledProcessError):
        return None, None


def _git(folder: Path, *arguments: str) -> str:
    # a checkout of another user (a course's, a colleague's) is fine: its code is running already
    trusted = f"safe.directory={folder}"
    command = ["git", "--no-optional-locks", "-c", trusted, "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
