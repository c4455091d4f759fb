"""How Horovod is compiled: with what, with which options, and where its wheel is kept."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

from locks import SetupError, lock_file, only_horovod, pinned

HINT = "about 3 minutes on 2 cores"


def compiler() -> str:
    for name in (os.environ.get("CXX", ""), "g++", "c++", "clang++"):
        if name and (found := shutil.which(name)):
            return found
    raise SetupError(
        "No C++ compiler found (looked for $CXX, g++, c++, clang++). Horovod is compiled from "
        "source: install one, for example the package g++ or build-essential."
    )


def wheel_folder(*, with_mpi: bool) -> Path:
    """Cache folder of the Horovod wheel, keyed by all that its binary depends on."""
    cxx = compiler()
    command = [cxx, "-dumpfullversion"]
    version = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    parts = (
        only_horovod(lock_file("ranks").read_text()), pinned("ranks", "tensorflow-cpu"),
        platform.python_version(), platform.machine(), "-".join(platform.libc_ver()),
        cxx, version.strip(), "mpi" if with_mpi else "gloo",
    )  # fmt: skip
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache / "horoscale" / "wheels" / key


def build_environment(venv: Path, *, with_mpi: bool) -> dict[str, str]:
    env = dict(os.environ)
    env["PATH"] = f"{venv / 'bin'}{os.pathsep}{env.get('PATH', '')}"
    env["CXX"] = compiler()
    env["HOROVOD_CMAKE"] = str(venv / "bin" / "cmake")
    env["MAKEFLAGS"] = f"-j{len(os.sched_getaffinity(0))}"
    env["HOROVOD_WITH_TENSORFLOW"] = env["HOROVOD_WITH_GLOO"] = "1"
    env["HOROVOD_WITH_MPI" if with_mpi else "HOROVOD_WITHOUT_MPI"] = "1"
    env["HOROVOD_WITHOUT_PYTORCH"] = env["HOROVOD_WITHOUT_MXNET"] = "1"
    return env
