"""Versions of MPI and PMIx, from what libraries that are loaded say of themselves."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.sweeps import ROOT
from train.distributed.machine.libraries import loaded_libraries, mpi_version, mpi_versions

MAPS = """\
7f1e2c000000-7f1e2c021000 rw-p 00000000 00:00 0
7f1e30a00000-7f1e30b00000 r-xp 00000000 fe:01 123 /usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4
7f1e30c00000-7f1e30d00000 r-xp 00000000 fe:01 124 /usr/lib/x86_64-linux-gnu/libmpi_cxx.so.40.30.1
7f1e31c00000-7f1e31d00000 r-xp 00000000 fe:01 125 /opt/my pmix/lib/libpmix.so.2.2.35
"""


def test_what_is_loaded_and_how_it_names_itself() -> None:
    assert loaded_libraries(MAPS) == {
        "libmpi": "/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4",
        "libpmix": "/opt/my pmix/lib/libpmix.so.2.2.35",
    }
    intel = "Intel(R) MPI Library 2021.9 for Linux* OS"
    assert mpi_version(f"{intel}\n") == ("mpi", intel)
    assert mpi_versions() == {}, "nothing is loaded in order to ask"


def test_the_real_libraries() -> None:
    code = (
        "import ctypes\nfor name in ('libmpi.so.40', 'libpmix.so.2'): ctypes.CDLL(name)\n"
        "from train.distributed.machine.libraries import mpi_versions; print(mpi_versions())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if "cannot open shared object" in done.stderr:
        pytest.skip("no Open MPI on this machine")
    form = r"{'openmpi': '[45][\d.]+\w*', 'pmix': '[\d.]+\w*'}\n"
    assert re.fullmatch(form, done.stdout), done
