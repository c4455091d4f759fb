"""Asking files and programs of this node; whatever cannot be asked is unknown, with the reason."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from train.errors import start_error
from train.interconnect.facts.record import Fact, Group, Role

LIMIT_S = 20.0


class Answer(NamedTuple):
    """text: None where there is none, and then why."""

    text: str | None
    why: str | None = None


def read(path: Path) -> Answer:
    try:
        return Answer(path.read_text(encoding="utf-8", errors="replace").strip())
    except OSError as error:
        return Answer(None, f"{path}: {error.strerror}")


def ask(command: Sequence[str]) -> Answer:
    """What a program prints; its failure is no answer."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, errors="replace", check=False,
            timeout=LIMIT_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Answer(None, f"{command[0]} gave no answer in {LIMIT_S:.0f} s")
    except OSError as error:
        reason = start_error(error, command[0], os.environ).strerror
        return Answer(None, f"{command[0]}: {reason}")
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no word"]
        return Answer(None, f"{command[0]} ended with code {done.returncode}: {said[-1][:200]}")
    return Answer(done.stdout.strip())


def fact(group: Group, name: str, answer: Answer, role: Role = "same") -> Fact:
    return Fact(group=group, name=name, value=answer.text, role=role, why=answer.why)
