"""As whom: what another user may write in is never touched by root. Root's image builds, sweeps and
reports in such a place go on as that user, and need nothing of root's.

Run as a program by root, inside mounts of its own: `users.py USER -- COMMAND`.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from locks import SetupError, others_write, table
from runner import run

ROOT = Path(__file__).resolve().parent.parent
PRACTICE_USER = "practice"
#: root's own PATH may lead through folders that nobody else can enter.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def as_user(argv: Sequence[str], user: str) -> list[str]:
    """The same command as another user, with that user's HOME and groups, and the variables that
    the table lets through; only root may run it. It gets a SIGTERM when what started it has died.

    The caller gives it a session without root's terminal (terminal.py, or ``start_new_session``).
    """
    own, seen = pwd.getpwnam(user), table.environment_of("user", os.environ)
    # names, not values: everybody can read a command line; and before the user is another one,
    # whose processes could read what this one started with
    hidden = [token for name in sorted(os.environ.keys() - seen.keys()) for token in ("-u", name)]
    return [
        "env", *hidden, f"HOME={own.pw_dir}", f"USER={user}", f"LOGNAME={user}",
        f"PATH={SEARCH_PATH}", "setpriv", f"--reuid={user}", f"--regid={own.pw_gid}",
        "--init-groups", "--inh-caps=-all", "--pdeathsig=TERM", "--", *argv,
    ]  # fmt: skip


def enter_argv(command: Sequence[str], user: str) -> list[str]:
    """The command as another user, who gets to see this Python and this checkout where root keeps
    them closed; only root may run it.

    Raises SetupError where others may not read them: a mount opens what is on the way alone.
    """
    for path in (*needed(), Path(__file__)):
        if not path.stat().st_mode & stat.S_IROTH:
            raise SetupError(
                f"only root can read {path}, and the user {user} is to run it: "
                f"chmod -R go+rX {ROOT}, or clone with umask 022"
            )
    if not any(closed_folder(path) for path in needed()):
        return as_user(command, user)
    return [
        "unshare", "--mount", "--propagation", "private", "--",
        sys.executable, str(Path(__file__).resolve()), user, "--", *command,
    ]  # fmt: skip


def ensure_user() -> str:
    """The practice user's name; root makes the user where it is missing."""
    if not exists(PRACTICE_USER):
        for file in ("/etc/subuid", "/etc/subgid"):
            Path(file).touch()  # then useradd hands out a range of ids, too
        run(["useradd", "--create-home", "--user-group", "--shell", "/bin/bash", PRACTICE_USER])
    return PRACTICE_USER


def exists(user: str) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwnam(user))
    return False


def give(folder: Path, user: str) -> None:
    """Make a folder and all below it the user's, but never what a link leads to, whichever user
    made it, nor a file that has a second name elsewhere. Names are looked up in folders that are
    held open, so that nobody can exchange one meanwhile.

    Raises OSError where another user's link is on the way.
    """
    owner = pwd.getpwnam(user)
    top = open_folder(folder)
    try:
        for _, folders, files, handle in os.fwalk(".", dir_fd=top):
            for name in (*folders, *files):
                _give_one(name, handle, owner)
            os.fchown(handle, owner.pw_uid, owner.pw_gid)
    finally:
        os.close(top)


def _give_one(name: str, folder: int, owner: pwd.struct_passwd) -> None:
    with suppress(FileNotFoundError):  # it went meanwhile
        entry = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
        try:
            found = os.fstat(entry)
            if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
                os.chown(f"/proc/self/fd/{entry}", owner.pw_uid, owner.pw_gid)
        finally:
            os.close(entry)


def open_folder(folder: Path) -> int:
    """A folder, made where it is missing; on the way only links of root's are followed."""
    here = os.open("/", os.O_PATH)
    parts = list(folder.absolute().parts[1:])
    while parts:
        name = parts.pop(0)
        before = os.umask(0o022)  # others are to enter what is made
        try:
            os.mkdir(name, 0o755, dir_fd=here)
        except FileExistsError:
            pass
        finally:
            os.umask(before)
        entry = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=here)
        if stat.S_ISLNK(os.fstat(entry).st_mode):
            around = Path(f"/proc/self/fd/{here}")
            if os.fstat(entry).st_uid or others_write(os.fstat(here), around, passing=True):
                raise PermissionError(
                    f"{folder}: {name} is a link that others than root can change, expected folders"
                )
            target = Path(os.readlink("", dir_fd=entry))
            os.close(entry)
            entry = os.open("/", os.O_PATH) if target.is_absolute() else os.dup(here)
            parts[:0] = target.parts[1:] if target.is_absolute() else target.parts
        os.close(here)
        here = entry
    opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
    os.close(here)
    return opened


def needed() -> tuple[Path, ...]:
    """What programs need of this machine besides its system folders: Python and this checkout."""
    return tuple(dict.fromkeys(Path(p).resolve() for p in (sys.base_prefix, sys.prefix, ROOT)))


def closed_folder(path: Path) -> Path | None:
    """The first folder on the way to ``path`` that others may not enter."""
    for folder in (*reversed(path.absolute().parents), *reversed(path.resolve().parents)):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


def view_commands(paths: Iterable[Path], stage: Path) -> list[list[str]]:
    """Mounts, for a space of its own, that make ``paths`` reachable for everybody: a closed folder
    becomes an empty one that holds just these. Nothing changes for the machine itself.

    ``stage``: an empty folder, visible to nobody else, over which the paths are carried.
    """
    closed = {path: folder for path in paths if (folder := closed_folder(path))}
    held = {path: str(stage / str(number)) for number, path in enumerate(closed)}
    tmpfs = ["mount", "-t", "tmpfs", "-o", "mode=0711,size=1m", "view"]
    carried = [(["mkdir", "-p", place], ["mount", "--rbind", str(path), place])
               for path, place in held.items()]  # fmt: skip
    shown = [(["mkdir", "-p", "-m", "0755", str(path)], ["mount", "--move", place, str(path)])
             for path, place in held.items()]  # fmt: skip
    covered = [[*tmpfs, str(folder)] for folder in dict.fromkeys(closed.values())]
    return [*chain(*carried), *covered, *chain(*shown)]


def main(arguments: Sequence[str]) -> None:
    """Become the command; does not return."""
    user, _, *command = arguments
    here = Path.cwd()
    stage = Path(tempfile.mkdtemp(prefix="horoscale-view-", dir="/run"))
    for mount in view_commands(needed(), stage):
        run(mount)
    for folder in (*stage.iterdir(), stage):
        folder.rmdir()  # never more than that: what was carried over them is the checkout itself
    with suppress(OSError):
        os.chdir(here)  # as it is seen now
    argv = as_user(command, user)
    os.execvp(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
