"""What the programs here share: how they run others, one at a time, what a disk must hold, and how
they end where something refuses."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from locks import SetupError, errors, table

TAIL_LINES = 20
SIGN_OF_LIFE_S = 15
REQUEST_IS_WRONG = 2
GB = 1e9
PLACES = (
    "name other places: VENV=PATH for the environment, XDG_CACHE_HOME=DIR for the caches, "
    "TMPDIR=DIR for temporary files"
)
_FULL = re.compile("No space left on device|Disk quota exceeded")
#: Where a compiler, a linker or CMake first says what is wrong; what comes later follows from it.
_FIRST_ERROR = re.compile(
    r"^\s*(?:\S+: (?:\w+ )*error: |\S*\bld: (?!warning)|CMake Error).*(?:\n.*){0,2}", re.MULTILINE
)


def speaker(program: str) -> Callable[[str], None]:
    """Says things on stderr in a program's name."""
    return lambda text: print(f"[{program}] {text}", file=sys.stderr, flush=True)


def run(
    command: Sequence[str],
    what: str = "",
    *,
    hint: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Output of a command that must succeed; SetupError with the end of what it said, in whatever
    encoding, and the hint."""
    name = what or " ".join(command)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=cwd, env=env,
            check=False, errors="backslashreplace",
        )  # fmt: skip
    except OSError as error:
        cause = errors.start_error(error, command[0], os.environ if env is None else env)
        raise SetupError(f"{name} failed: {cause}") from error
    if done.returncode != 0:
        said = tail(done.stdout + done.stderr) or "it says nothing"
        raise SetupError(f"{name} failed (exit code {done.returncode}):\n{said}\n{hint}".rstrip())
    return done.stdout


def pip_environment(pip: Sequence[str]) -> dict[str, str]:
    """What pip sees: the way to packages that its variables and configuration files name, and none
    of their other options (user, target, require-virtualenv, dry-run, ...).

    Raises SetupError where pip cannot read its configuration.
    """
    seen = table.environment_of("setup", os.environ)
    # options of that question, too, which files may set: --user would hide the machine's own file
    plain = dict.fromkeys(("PIP_USER", "PIP_GLOBAL", "PIP_SITE", "PIP_QUIET", "PIP_VERBOSE"), "0")
    found = run(
        [*pip, "config", "list"], "reading pip's configuration",
        hint="Correct that file; pip config debug lists all.",
        env=seen | plain | {"PIP_LOG": os.devnull},
    )  # fmt: skip
    return index_settings(found) | seen | {"PIP_CONFIG_FILE": os.devnull}


def index_settings(listing: str) -> dict[str, str]:
    """The way to packages that pip's configuration files name, as variables.

    ``listing``: what ``pip config list`` prints, a line like ``global.index-url='...'`` for each
    setting. As in pip, the sections of commands win over the global one.
    """
    found: dict[str, str] = {}
    for sections in (("global",), ("install", "download")):
        for line in listing.splitlines():
            key, _, value = line.partition("=")
            section, _, option = key.partition(".")
            if section in sections and option in table.INDEX_OPTIONS:
                words = str(ast.literal_eval(value)).split()
                found[f"PIP_{option.upper().replace('-', '_')}"] = " ".join(words)
    return found


def output(command: Sequence[str]) -> str | None:
    """What a command prints; None where it cannot be started or fails."""
    with suppress(SetupError):
        return run(command)
    return None


def logged(
    command: Sequence[str],
    log: Path,
    what: str,
    say: Callable[[str], None],
    *,
    hint: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    held: Sequence[int] = (),
) -> None:
    """Run a long command with its output in a log, and a sign of life every 15 seconds.

    ``held``: descriptors that the command inherits, locks for instance. Raises SetupError with the
    first error of a compiler or the end of the log, and the hint, where it fails.
    """
    done, began = threading.Event(), time.monotonic()

    def tick() -> None:
        while not done.wait(SIGN_OF_LIFE_S):
            say(f"{what}: {time.monotonic() - began:.0f} s so far: {last_line(log)}")

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
            cause = errors.start_error(error, command[0], os.environ if env is None else env)
            raise SetupError(f"{what}: cannot start {command[0]}: {cause}") from error
        finally:
            done.set()
            ticker.join()
    if code != 0:
        said = log.read_bytes()[begin:].decode(errors="replace")
        failed = f"{what} failed (exit code {code})"
        if full := _FULL.search(said):
            raise SetupError(f"{failed}: {full[0]} (output in {log}). Free some, or {PLACES}")
        if first := _FIRST_ERROR.search(said):
            raise SetupError(f"{failed}: {first[0].strip()}\nAll output is in {log}. {hint}")
        raise SetupError(f"{failed}. {hint}\nThe end of {log}:\n{tail(said)}")


def sha256_of(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


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
    """Hold the lock of a file, which is made where it is missing; yields its descriptor.

    A link in its place is refused. ``waits``: called before waiting for another. It is no folder:
    other machines that share the disk do not see locks of one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # nobody else may open it: a lock of another user would hold us up for ever
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except PermissionError:  # root made it, in an earlier version
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


def check_room(folder: Path, needed: float, say: Callable[[str], None]) -> None:
    """``needed``: bytes that will be written into a folder, which need not be there yet.

    A quota is only seen where the file system shows it as free space; others refuse while writing.

    Raises SetupError where the file system has less, before anything is written.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise SetupError(
            f"{free / GB:.1f} GB are free, expected room for {needed / GB:.1f} GB in {folder}. "
            f"Free some, or {PLACES}"
        )
    say(f"up to {needed / GB:.1f} GB in {folder}; free: {free / GB:.1f} GB")


def guarded(action: Callable[[], int | None], say: Callable[[str], None], hint: str) -> int:
    """Exit code of a program: 2 where it refuses, with a sentence; ``hint``: what helps where the
    system does."""
    try:
        return action() or 0
    except SetupError as error:
        say(str(error))
    except OSError as error:
        todo = "; ".join(filter(None, (errors.remedy(error), hint)))
        say(f"{error}. {todo[:1].upper()}{todo[1:]}")
    except KeyboardInterrupt:
        say("interrupted: the next make goes on from here")
        return 130
    return REQUEST_IS_WRONG
