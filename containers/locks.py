"""The lock files: where they are, what they pin, and what the programs here take of `train`."""

from __future__ import annotations

import errno
import grp
import importlib
import os
import pwd
import re
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

LOCKS = Path(__file__).resolve().parent
if str(LOCKS.parent) not in sys.path:  # programs here see only what lies in their own folder
    sys.path.append(str(LOCKS.parent))
#: The table of what each program sees of the user's environment.
table = importlib.import_module("train.environment")
atomic = importlib.import_module("train.record.atomic")
errors = importlib.import_module("train.errors")
program = importlib.import_module("train.program")
run, write_all = program.run, program.write_all
quota = importlib.import_module("train.distributed.machine.quota")


class SetupError(Exception):
    """Set-up cannot go on; the text says what was found, what was expected and what to do."""


def cache_folders() -> list[Path]:
    """What set-up keeps for the next checkout: as the user says, and as the home says."""
    home, named = Path.home(), errors.named_folder("XDG_CACHE_HOME")
    if writable_by_others(home):  # sudo and CI let root have another user's
        with suppress(KeyError):  # not every id has a name
            home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    return [c / "horoscale" for c in (named, home / ".cache") if c]


def cache_folder() -> Path:
    """The home's, if others could put a wheel where the user says."""
    *named, own = cache_folders()
    return next((c for c in named if not any(map(writable_by_others, (c, c / "wheels")))), own)


def writable_by_others(path: Path, *, passing: bool = False) -> Path | None:
    """The first place on the way to ``path``, itself included, where somebody else than this user
    and root could put something; links are followed one by one. What is missing is nobody's.

    Only root asks for the folders above: a cluster's users have their room in the folder of a
    project. ``passing``: what matters lies further on, and a sticky folder, as /tmp, protects it.
    """
    path = path.absolute()
    for part in (*(reversed(path.parents) if os.geteuid() == 0 else ()), path):
        if not os.path.lexists(part):
            break
        on_the_way = passing or part != path
        if others_write(part.lstat(), part, passing=on_the_way):
            return part
        if part.is_symlink() and os.access(part, os.F_OK):  # Path.exists raises OSErrors
            target = part.parent / part.readlink()
            if found := writable_by_others(target, passing=on_the_way):
                return found
    return None


def others_write(found: os.stat_result, place: Path, *, passing: bool = False) -> bool:
    """Whether somebody else than this user and root may change an entry, from its state.

    The group may where it is the owner's private one, as Debian makes it for each user, and no
    access list (whose mask the group's bits then are) admits others.
    """
    if found.st_uid not in _trusted():
        return True
    if stat.S_ISLNK(found.st_mode) or (passing and found.st_mode & stat.S_ISVTX):
        return False
    if not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
        listed = "system.posix_acl_access" in os.listxattr(place)
    except OSError as error:
        listed = error.errno != errno.ENOTSUP
    except (KeyError, AttributeError):  # a user or group without a name; not Linux
        return True
    # members by their own entry are not listed, so the name decides
    private = (user.pw_gid, user.pw_name) == (group.gr_gid, group.gr_name)
    alone = private and not listed and set(group.gr_mem) <= {user.pw_name}
    return bool(found.st_mode & stat.S_IWOTH) or not alone


def _trusted() -> set[int]:
    """Root and this user; in a user namespace root of the machine has the id of all unknown."""
    ids, mapped, unknown = {0, os.geteuid()}, Path("/proc/self/uid_map"), "/proc/sys/fs/overflowuid"
    if mapped.is_file() and mapped.read_text().split() != ["0", "0", "4294967295"]:
        ids.add(int(Path(unknown).read_text()))
    return ids


def check_own(folder: Path) -> None:
    """Raises SetupError where others could change what we run from there.

    Who may write the checkout may change its code, too, and so may own or write a folder of it.
    """
    if (part := writable_by_others(folder)) is None:
        return
    root = LOCKS.parent.stat()  # a folder that is made now is not opener
    found = folder.stat() if os.access(folder, os.F_OK) else root
    same = found.st_gid == root.st_gid or root.st_mode & stat.S_IWOTH
    shared = root.st_mode & 0o022 if same else 0
    known = shared or found.st_uid in (*_trusted(), root.st_uid)
    inside = folder.resolve().is_relative_to(LOCKS.parent)
    if not inside or not known or found.st_mode & 0o022 & ~shared:
        state = part.lstat()
        todo = f"Try chmod go-w {part}, or name" if state.st_uid in _trusted() else "Name"
        raise SetupError(
            f"others than you can change {part}, and programs in {folder} are run: expected "
            f"folders that only you and root can write, found {state.st_mode & 0o7777:o} of user "
            f"{state.st_uid}, group {state.st_gid}. {todo} a place of your own: VENV=PATH for the "
            "environment, XDG_CACHE_HOME=DIR for the caches"
        )


def lock_file(part: str) -> Path:
    return LOCKS / "locks" / f"{part}.lock"


def entries(text: str) -> dict[str, str]:
    """The entries of a lock by package: each with its hashes, without comments."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.strip()[:1] in ("#", ""):
            continue
        if line[:1] != " ":
            name = re.split(r"[=\[ ]", line, maxsplit=1)[0]
            found[name] = ""
        found[name] += line + "\n"
    return found


def joined(locked: Mapping[str, str], *without: str) -> str:
    """Entries as the text of a lock, without those of some packages."""
    return "".join(entry for name, entry in sorted(locked.items()) if name not in without)


def version(requirements: str, package: str) -> str:
    """The version that a lock's text pins for a package."""
    if entry := entries(requirements).get(package):
        return entry.split()[0].partition("==")[2]
    raise SetupError(f"The lock files do not pin {package}: run `make lock`")


def only_horovod() -> str:
    """The entry of Horovod, which is installed from a wheel that is compiled here."""
    return entries(lock_file("ranks").read_text())["horovod"]
