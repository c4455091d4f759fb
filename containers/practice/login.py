"""The practice user's login node: this machine, entered from root's shell."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .place import Place, PracticeError
from .view import needed, view_commands

INSIDE = "HOROSCALE_PRACTICE_LOGIN"


def login_argv(words: Sequence[str]) -> list[str]:
    """Come back here with mounts of our own, to change them for the command only."""
    program = str(Path(__file__).resolve().parent)
    return [
        "unshare", "--mount", "--propagation", "private", "--",
        sys.executable, program, "login", "--", *words,
    ]  # fmt: skip


def login(place: Place, words: Sequence[str]) -> None:
    """Become the command, as the practice user; does not return.

    Raises:
        PracticeError: no command, not root, or a mount that the machine refuses.
    """
    if not words:
        raise PracticeError("no command found, expected: login -- COMMAND")
    if os.environ.get(INSIDE) != "1":
        argv = login_argv(words)
        os.execvpe(argv[0], argv, os.environ | {INSIDE: "1"})  # noqa: S606
    stage = Path(tempfile.mkdtemp(prefix="view-", dir=place.folder))
    _mount(view_commands(needed(), stage))
    for folder in (*stage.iterdir(), stage):
        folder.rmdir()  # never more than that: what was carried over them is the checkout itself
    from unprivileged import PRACTICE_USER, as_user  # noqa: PLC0415

    argv = as_user(words, PRACTICE_USER)
    environment = {k: v for k, v in os.environ.items() if k != INSIDE}
    environment["SLURM_CONF"] = str(place.slurm_conf)
    os.execvpe(argv[0], argv, environment)  # noqa: S606


def _mount(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PracticeError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
