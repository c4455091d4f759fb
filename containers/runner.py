"""How the programs here run other programs, and that only one of them changes a thing at a time."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from locks import SetupError

TAIL_LINES = 20
SIGN_OF_LIFE_S = 15


def run(
    command: Sequence[str],
    what: str = "",
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Output of a command that must succeed; SetupError with the end of what it said."""
    name = what or " ".join(command)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=cwd, env=env,
            check=False,
        )  # fmt: skip
    except OSError as error:
        raise SetupError(f"{name} failed: {error}") from error
    if done.returncode != 0:
        said = tail(done.stdout + done.stderr) or "it says nothing"
        raise SetupError(f"{name} failed (exit code {done.returncode}):\n{said}")
    return done.stdout


def output(command: Sequence[str]) -> str | None:
    """What a command prints; None where it cannot be started or fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def logged(
    command: Sequence[str],
    log: Path,
    alive: Callable[[float, str], None],
    what: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    held: Sequence[int] = (),
) -> tuple[int, str]:
    """Exit code and output of a long command, whose output goes on in a log.

    ``alive``: called every 15 seconds with the seconds so far and the log's last line; ``held``:
    descriptors that the command inherits, locks for instance. SetupError where it cannot start.
    """
    done, began = threading.Event(), time.monotonic()

    def tick() -> None:
        while not done.wait(SIGN_OF_LIFE_S):
            alive(time.monotonic() - began, last_line(log))

    ticker = threading.Thread(target=tick, daemon=True)
    with log.open("ab") as out:
        begin = out.tell()
        ticker.start()
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=cwd,
                env=env, pass_fds=held, check=False,
            ).returncode  # fmt: skip
        except OSError as error:
            raise SetupError(f"{what}: cannot start {command[0]}: {error}") from error
        finally:
            done.set()
            ticker.join()
    return code, log.read_bytes()[begin:].decode(errors="replace")


def last_line(log: Path) -> str:
    with log.open("rb") as handle:
        handle.seek(max(0, log.stat().st_size - 2000))
        lines = handle.read().decode(errors="replace").split("\n")
    spoken = [line.strip() for line in lines if line.strip()]
    return spoken[-1][:100] if spoken else ""


def tail(text: str, lines: int = TAIL_LINES) -> str:
    return "\n".join(line[:300] for line in text.strip().splitlines()[-lines:])


@contextmanager
def only_one(path: Path, waits: Callable[[], None] | None = None) -> Iterator[int]:
    """Hold the lock of a folder, or of a file that is made; yields its descriptor.

    A link in the file's place is refused. ``waits``: called before waiting for another.
    """
    if path.is_dir():
        handle = os.open(path, os.O_DIRECTORY)
    else:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except PermissionError:  # root made it; where writing is not needed (all but NFS)
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waits is not None:
                waits()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)
