"""What goes wrong with data is a wrong request (exit code 2), told without a traceback."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from train.config import ConfigError

#: Error numbers of a full disk and of a used-up quota.
FULL = (errno.ENOSPC, errno.EDQUOT)


class DataError(ConfigError):
    """Data are missing, damaged or no data set; the text says which file and what to do."""


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
