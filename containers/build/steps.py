"""One step of an image build: a command with its output in a log, said while it goes on.

All of it runs as the user who builds: in that user's folders, so nothing here may run as root.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from locks import SetupError
from runner import output, tail

SIGN_OF_LIFE_S = 15


def say(text: str) -> None:
    print(f"[image] {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Steps:
    """Runs commands one after the other."""

    work: Path
    log: Path
    held: tuple[int, ...] = ()  # open locks: a command that outlives us (kill -9) keeps them
    started: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def write(self, name: str, content: str | bytes = "") -> Path:
        """A file of the work folder anew: what lay there may be root's, of an earlier release."""
        file = self.work / name
        file.unlink(missing_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

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
                    cwd="/", env=dict(environment), pass_fds=self.held, check=False,
                ).returncode  # fmt: skip
            except OSError as error:
                raise SetupError(f"{what}: cannot start {command[0]}: {error}") from error
            finally:
                done.set()
                ticker.join()
        if code != 0:
            raise SetupError(
                f"{what} failed (exit code {code}). {hint}\n"
                f"The end of {self.log}:\n{tail(self.log.read_text(errors='replace'))}"
            )


def last_line(log: Path) -> str:
    with log.open("rb") as handle:
        handle.seek(max(0, log.stat().st_size - 2000))
        lines = handle.read().decode(errors="replace").split("\n")
    spoken = [line.strip() for line in lines if line.strip()]
    return spoken[-1][:100] if spoken else ""


def remove_tree(folder: Path) -> None:
    """Also what an interrupted build left behind, which belongs to our mapped ids."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        output(["unshare", "--map-root-user", "--map-auto", "rm", "-rf", "--", str(folder)])
