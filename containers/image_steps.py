"""One step of an image build: a command with its output in a log, said while it goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from locks import SetupError
from unprivileged import as_user, home_of

SIGN_OF_LIFE_S = 15
TAIL_LINES = 20


def say(text: str) -> None:
    print(f"[image] {text}", file=sys.stderr, flush=True)


def as_builder(command: Sequence[str], user: str) -> list[str]:
    """The same command as the user who builds, which is ourselves unless we are root."""
    if os.geteuid() != 0:
        return list(command)
    return as_user(command, user, str(home_of(user)))


@dataclass(frozen=True)
class Steps:
    """Runs commands as the builder: ourselves, or as root the unprivileged user."""

    user: str
    work: Path  # the builder can write it, and we, too
    log: Path
    held: tuple[int, ...] = ()  # open locks: a command that outlives us (kill -9) keeps them
    started: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def run_as_builder(
        self, command: Sequence[str], what: str, environment: Mapping[str, str], hint: str
    ) -> None:
        self.run(as_builder(command, self.user), what, environment, hint)

    def run(
        self, command: Sequence[str], what: str, environment: Mapping[str, str], hint: str
    ) -> None:
        """Run to the end; SetupError with the end of the log and a hint where that fails."""
        say(f"{self.seconds():4.0f} s  {what}")
        done = threading.Event()
        began = time.monotonic()

        def tick() -> None:
            while not done.wait(SIGN_OF_LIFE_S):
                last = last_line(self.log)
                say(f"{self.seconds():4.0f} s    ... {time.monotonic() - began:.0f} s: {last}")

        ticker = threading.Thread(target=tick, daemon=True)
        with self.log.open("ab") as out:
            out.write(f"\n=== {what}\n{' '.join(command)}\n".encode())
            out.flush()
            ticker.start()
            try:
                code = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    cwd=self.work, env=dict(environment), pass_fds=self.held, check=False,
                ).returncode  # fmt: skip
            except OSError as error:
                raise SetupError(f"{what}: cannot start {command[0]}: {error}") from error
            finally:
                done.set()
                ticker.join()
        if code != 0:
            raise SetupError(
                f"{what} failed (exit code {code}). {hint}\n"
                f"The end of {self.log}:\n{tail(self.log)}"
            )


def tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(line[:300] for line in lines)


def last_line(log: Path) -> str:
    with log.open("rb") as handle:
        handle.seek(max(0, log.stat().st_size - 2000))
        lines = handle.read().decode(errors="replace").split("\n")
    spoken = [line.strip() for line in lines if line.strip()]
    return spoken[-1][:100] if spoken else ""


def remove_tree(user: str, folder: Path) -> None:
    """Also what an interrupted build left behind, which belongs to the user's mapped ids."""
    if not folder.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        inside = ["unshare", "--map-root-user", "--map-auto", "rm", "-rf", "--", str(folder)]
        subprocess.run(as_builder(inside, user), capture_output=True, check=False)
