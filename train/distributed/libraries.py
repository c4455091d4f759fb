"""Versions of MPI and PMIx, asked of the libraries that this process has loaded already.

`ompi_info` would tell, too, in seconds, and of the installation that is found first.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from pathlib import Path


def mpi_versions() -> dict[str, str]:
    """``openmpi`` (or ``mpi`` where it is another) and ``pmix``, as far as they are loaded."""
    found = {}
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    loaded = loaded_libraries(maps.splitlines())
    if (path := loaded.get("libmpi")) and (told := _mpi_told(path)):
        name, version = mpi_version(told)
        found[name] = version
    if (path := loaded.get("libpmix")) and (told := _pmix_told(path)):
        found["pmix"] = told.split(",")[0].split(" (")[0].removeprefix("OpenPMIx ")
    return found


def loaded_libraries(maps: Iterable[str]) -> dict[str, str]:
    """libmpi and libpmix -> path, from the lines of /proc/self/maps."""
    found = {}
    for line in maps:
        path = line.partition("/")[2]
        if match := re.search(r"(?:^|/)(libmpi|libpmix)\.so[.\d]*$", path):
            found[match[1]] = f"/{path}"
    return found


def mpi_version(told: str) -> tuple[str, str]:
    """Name and version out of what MPI_Get_library_version says."""
    if match := re.match(r"Open MPI v?([^\s,]+)", told):
        return "openmpi", match[1]
    return "mpi", told.strip()[:80]


def _mpi_told(path: str) -> str | None:
    try:
        ask = ctypes.CDLL(path).MPI_Get_library_version
    except (OSError, AttributeError):
        return None
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    ask(text, ctypes.byref(length))
    return text.value.decode("utf-8", "replace")


def _pmix_told(path: str) -> str | None:
    try:
        ask = ctypes.CDLL(path).PMIx_Get_version
    except (OSError, AttributeError):
        return None
    ask.restype = ctypes.c_char_p
    told: bytes | None = ask()
    return told.decode("utf-8", "replace") if told else None
