"""One step of an image build: a command with its output in a log, said while it goes on.

All of it runs as the user who builds: in that user's folders, so nothing here may run as root.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from locks import SetupError
from runner import logged, output, tail


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
        with self.log.open("a") as out:
            out.write(f"\n=== {what}\n{' '.join(command)}\n")

        def alive(seconds: float, last: str) -> None:
            say(f"{self.seconds():4.0f} s    ... {seconds:.0f} s: {last}")

        # from a folder that nobody can put a module into
        code, said = logged(
            command, self.log, alive, what, env=environment, cwd=Path("/"), held=self.held
        )
        if code != 0:
            raise SetupError(
                f"{what} failed (exit code {code}). {hint}\nThe end of {self.log}:\n{tail(said)}"
            )


def remove_tree(folder: Path) -> None:
    """Also what an interrupted build left behind, which belongs to our mapped ids."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        output(["unshare", "--map-root-user", "--map-auto", "rm", "-rf", "--", str(folder)])
