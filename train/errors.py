"""What every room may raise."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

#: Error numbers of a full disk and of a used-up quota.
FULL = (errno.ENOSPC, errno.EDQUOT)


class ConfigError(ValueError):
    """The request is wrong; the text says what was found, what was expected, what to do."""


class DataError(ConfigError):
    """Data are missing, damaged or no data set; the text says which file and what to do."""


class WorldError(RuntimeError):
    """The world that Horovod made is not the one that the config asks for."""


class Unfinished(Exception):
    """All ranks stopped at an epoch's end on purpose, with a checkpoint to go on from."""

    def __init__(self, why: str, done: int, of: int) -> None:
        self.why, self.done, self.of = why, done, of
        super().__init__(f"{why}; {done} of {of} epochs are done and in the checkpoint")


@contextlib.contextmanager
def explained(doing: str, folder: Path) -> Iterator[None]:
    """Turn an OSError or a lack of memory while ``doing`` something into a DataError.

    Raises:
        DataError: with the file, the system's reason and what to do.
    """
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        if error.errno in FULL:
            raise DataError(
                f"no space left for {doing} ({where}: {error.strerror}); nothing half-written was "
                "left. Free some space, or name another folder with DATA=DIR."
            ) from error
        raise DataError(
            f"{doing} failed: {where}: {error.strerror or error}. "
            "Check that the folder is there, readable and writable, or name another with DATA=DIR."
        ) from error
    except MemoryError as error:
        raise DataError(f"{doing} needs more memory than this machine gives: {error}") from error
