"""What every room may raise, how refusals of the file system are met, and the command and the names
that a message gives."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import resource
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

#: Error numbers of a full disk and of a used-up quota.
FULL = (errno.ENOSPC, errno.EDQUOT)
#: A read that fails is tried this often in all, with this pause: a file server may be back by then.
READ_TRIES, READ_AGAIN_S = 3, 0.1
#: What exec may report of a folder of PATH, as if it were of the program.
_OF_FOLDERS = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)


class ConfigError(ValueError):
    """The request is wrong; the text says what was found, what was expected, what to do."""


class DataError(ConfigError):
    """Data are missing, damaged or no data set; the text says which file and what to do."""


def unknown(kind: str, word: object, known: Iterable[str]) -> str:
    """One sentence: what was found, the nearest valid name, whatever its case, all valid names."""
    names = list(known)
    spelt = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(word).lower(), spelt, n=1, cutoff=0.5)
    hint = f"did you mean {spelt[near[0]]!r}? " if near else ""
    return f"unknown {kind} {word!r}; {hint}known: {', '.join(names) or '(none)'}"


def remedy(error: OSError, place: Path | None = None) -> str:
    """What to do about it, by what the file system shows now; '' if that shows no cause. ``place``:
    the file or folder that it is about, if the error names none."""
    named = error.filename if isinstance(error.filename, str | bytes) else place
    if error.errno == errno.EMFILE:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"allow more than {most} open files (ulimit -n)"
    with contextlib.suppress(OSError):  # the working folder is gone, or the file system is
        path = None if named is None else Path(os.path.abspath(os.fsdecode(named)))  # noqa: PTH100
        return "" if path is None else _cause(error.errno or 0, path)
    return ""


def _cause(number: int, path: Path) -> str:
    if number == errno.ENOSPC:
        free, place = os.statvfs(there := _seen(path)), f"the file system of {there}"
        if free.f_files and not free.f_favail:  # some file systems, as btrfs, count no inodes
            return f"remove files on {place}: its inodes are used up (df -i)"
        left = free.f_bavail * free.f_frsize / 1e9
        return f"free space on {place} ({left:.1f} GB left), or look for a quota there"
    if number in (errno.EACCES, errno.EPERM):
        return _forbidden(path)
    quota = "a quota of the user, group or folder is used up"
    return {
        errno.EDQUOT: f"remove files on the file system of {_seen(path)}: {quota}",
        errno.EISDIR: f"name a file: {path} is a folder",
        errno.EROFS: f"make the file system of {_seen(path)} writable, which is read-only",
        errno.ESTALE: "have its file server looked at",
        errno.ETIMEDOUT: "have its file server looked at",
        errno.EIO: "have its disk or file server looked at",
    }.get(number, "")


def _forbidden(path: Path) -> str:
    """What this user may not do on the way to a file, or with it."""
    for folder in reversed(path.parents):
        if os.access(folder, os.F_OK) and not os.access(folder, os.X_OK):
            return f"fix the permissions of {folder}, which this user may not enter"
    there = _seen(path)
    if there == path and not os.access(path, os.R_OK):
        return f"fix the permissions of {path}, which this user may not read"
    # a file may be one to replace, which its folder decides
    places = (there, path.parent) if there.is_dir() else (path.parent, there)
    for place in places:
        if not os.access(place, os.W_OK):
            return f"fix the permissions of {place}, where this user may not write"
    return ""


def _seen(path: Path) -> Path:
    """It, or the nearest folder above that is there."""
    return next(one for one in (path, *path.parents) if os.access(one, os.F_OK))


def expanded(written: str | Path) -> Path:
    """A path as a shell reads it: ~ and ~user are home folders. That of nobody stays as it is."""
    return Path(os.path.expanduser(written))  # noqa: PTH111


def named_folder(variable: str) -> Path | None:
    """The one that a variable of the XDG specification names. A relative path does not count there,
    nor one with ~, which no shell has expanded."""
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else None


def start_error(error: OSError, program: str, environment: Mapping[str, str]) -> OSError:
    """Why a program could not be started in this environment. The error's number does not tell: for
    a missing program, or one without its interpreter, exec may report that of a folder of PATH."""
    if error.filename != program or error.errno not in _OF_FOLDERS:
        return error  # no room for a process, or no folder to start it in
    path = os.pathsep.join(os.get_exec_path(environment))
    found = shutil.which(program, mode=os.F_OK, path=path)
    if found is None and os.sep not in program:
        return FileNotFoundError(errno.ENOENT, "no such program on PATH", program)
    if found is not None and os.access(found, os.X_OK):
        return OSError(errno.ENOEXEC, "the interpreter in its first line cannot be started", found)
    return error if found is None else PermissionError(errno.EACCES, "Permission denied", found)


def make_line(goal: str, results: Path | None = None, **variables: str) -> str:
    """A line that make and the shell take as it is meant, whatever a name holds.

    RESULTS= is repeated if make was called with it, and ``results``, of the sweeps that the line
    is about, is that folder or not known.
    """
    asked = expanded(os.environ.get("RESULTS") or "results").resolve()
    usual = Path("results").resolve()
    if asked != usual and (results is None or asked == results.resolve()):
        variables["RESULTS"] = str(asked)
    # make takes $ for its own before the shell does
    given = (f"{name}={shlex.quote(text).replace('$', '$$')}" for name, text in variables.items())
    return " ".join(["make", goal, *given])


class Unreadable(OSError):
    """A file cannot be read now, which proves neither what it holds nor that there is none."""

    def __str__(self) -> str:
        return (
            f"{self.filename}: cannot be read ({self.strerror}) and was left as it is: "
            f"{remedy(self) or 'make it readable'}, then make sweep again"
        )


def read_whole(path: Path) -> bytes | None:
    """All of a file; None if there is none.

    Raises:
        Unreadable: it cannot be read now, and could not be a moment later.
    """
    for tries_left in reversed(range(READ_TRIES)):
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            break
        except OSError as error:
            if not tries_left:
                words = error.strerror or str(error)
                raise Unreadable(error.errno, words, str(path)) from error
        time.sleep(READ_AGAIN_S)
    return None


def text_of(file: Path) -> str:
    """What it says, without blanks around it; '' if it cannot be read."""
    with contextlib.suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace").strip()
    return ""


class RecordError(ValueError):
    """A file is no record; the text says which, what was found and what to do."""


class NoRecord(RecordError):
    """There is no such file."""


class WorldError(RuntimeError):
    """The world that Horovod made is not the one that the config asks for."""


class Unfinished(Exception):
    """All ranks stopped at an epoch's end on purpose, with a checkpoint to go on from."""


@contextlib.contextmanager
def explained(doing: str, folder: Path, elsewhere: str = "DATA=DIR") -> Iterator[None]:
    """Turn an OSError or a lack of memory while ``doing`` something into a DataError.
    ``elsewhere``: the variable that names another folder."""
    try:
        yield
    except OSError as error:
        todo = remedy(error, folder)
        todo = f"{todo[0].upper()}{todo[1:]}, or name" if todo else "Name"
        raise DataError(
            f"{doing} failed: {error.filename or folder}: {error.strerror or error}. {todo} "
            f"another folder with {elsewhere}."
        ) from error
    except MemoryError as error:
        raise DataError(f"{doing} needs more memory than this machine gives: {error}") from error


def is_private(descriptor: int) -> bool:
    """Whether nobody but this user can have written the open file."""
    status = os.fstat(descriptor)
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def is_writable(folder: Path) -> bool:
    """Whether it can be made, or written into if it is there."""
    # what a closed folder holds is not there for us
    return os.access(_seen(folder.absolute()), os.W_OK | os.X_OK)
