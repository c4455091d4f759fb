"""One step of an image build: a command with its output in a log, said while it goes on.

All of it runs as the user who builds: in that user's folders, so nothing here may run as root.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner import logged, output, speaker

say = speaker("image")


@dataclass(frozen=True)
class Steps:
    """Runs commands one after the other."""

    work: Path
    log: Path
    environment: Mapping[str, str]
    held: tuple[int, ...] = ()  # open locks: a command that outlives us (kill -9) keeps them

    def write(self, name: str, content: str | bytes = "") -> Path:
        """Replace a file of the work folder: an earlier release may have left root's there."""
        file = self.work / name
        file.unlink(missing_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def run(
        self, command: Sequence[str], what: str, hint: str, env: Mapping[str, str] | None = None
    ) -> None:
        """Run to the end, in a folder that nobody can put a module into. ``env``: another one."""
        say(what)
        with self.log.open("a") as out:
            out.write(f"\n=== {what}\n{' '.join(command)}\n")
        logged(
            command, self.log, what, say, hint=hint, env=env or self.environment, cwd=Path("/"),
            held=self.held,
        )  # fmt: skip


def remove_tree(folder: Path) -> None:
    """Also what an interrupted build left behind, which belongs to our mapped ids."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        output(["unshare", "--map-root-user", "--map-auto", "rm", "-rf", "--", str(folder)])
