"""Versions of MPI and PMIx, from what libraries that are loaded say of themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from train.distributed.libraries import loaded_libraries, mpi_version, mpi_versions

MAPS = """\
7f1e2c000000-7f1e2c021000 rw-p 00000000 00:00 0
7f1e30a00000-7f1e30b00000 r-xp 00000000 fe:01 123 /usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4
7f1e30c00000-7f1e30d00000 r-xp 00000000 fe:01 124 /usr/lib/x86_64-linux-gnu/libmpi_cxx.so.40.30.1
7f1e31c00000-7f1e31d00000 r-xp 00000000 fe:01 125 /opt/my pmix/lib/libpmix.so.2.2.35
"""


def test_libraries_that_are_loaded() -> None:
    assert loaded_libraries(MAPS.splitlines()) == {
        "libmpi": "/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4",
        "libpmix": "/opt/my pmix/lib/libpmix.so.2.2.35",
    }


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4",
         ("openmpi", "4.1.4")),
        ("Intel(R) MPI Library 2021.9 for Linux* OS\n", ("mpi", "Intel(R) MPI Library 2021.9 for "
                                                        "Linux* OS")),
    ],
)  # fmt: skip
def test_mpi_version(told: str, expected: tuple[str, str]) -> None:
    assert mpi_version(told) == expected


def test_nothing_is_loaded_in_order_to_ask() -> None:
    assert mpi_versions() == {}


def test_the_real_libraries_where_there_are_some() -> None:
    code = (
        "import ctypes\nfor name in ('libmpi.so.40', 'libpmix.so.2'): ctypes.CDLL(name)\n"
        "from train.distributed.libraries import mpi_versions\n"
        "print(*sorted(mpi_versions().items()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "cannot open shared object" in done.stderr:
        pytest.skip("no Open MPI on this machine")
    import re

    assert re.fullmatch(r"\('openmpi', '[45][\d.]+\w*'\) \('pmix', '[\d.]+\w*'\)\n", done.stdout), (
        done
    )
