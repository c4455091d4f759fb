"""Versions of MPI and PMIx, asked of the libraries that this process has loaded already.

`ompi_info` would print them, too, in seconds, and of the installation that is found first.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from pathlib import Path


def mpi_versions() -> dict[str, str]:
    """``openmpi`` (or ``mpi`` for another) and ``pmix``, if they are loaded."""
    loaded = loaded_libraries(Path("/proc/self/maps").read_text("utf-8", "replace"))
    versions = {}
    with contextlib.suppress(KeyError, OSError, AttributeError):
        text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
        ctypes.CDLL(loaded["libmpi"]).MPI_Get_library_version(text, ctypes.byref(length))
        name, version = mpi_version(text.value.decode("utf-8", "replace"))
        versions[name] = version
    with contextlib.suppress(KeyError, OSError, AttributeError):
        ask = ctypes.CDLL(loaded["libpmix"]).PMIx_Get_version
        ask.restype = ctypes.c_char_p
        said = (ask() or b"").decode("utf-8", "replace")
        versions["pmix"] = said.split(",")[0].split(" (")[0].removeprefix("OpenPMIx ")
    return versions


def loaded_libraries(maps: str) -> dict[str, str]:
    """libmpi and libpmix -> path, from the text of /proc/self/maps."""
    found = re.findall(r"(?m)(/.*/(libmpi|libpmix)\.so[.\d]*)$", maps)
    return {name: path for path, name in found}


def mpi_version(said: str) -> tuple[str, str]:
    """Name and version out of what MPI_Get_library_version writes."""
    match = re.match(r"Open MPI v?([^\s,]+)", said)
    return ("openmpi", match[1]) if match else ("mpi", said.strip()[:80])
