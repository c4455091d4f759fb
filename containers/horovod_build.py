"""How Horovod is compiled: with what, which patches and options, and where its wheel is kept.

Horovod 0.28.1 is older than GCC 13. Its source is patched after the hash was checked: what newer
compilers refuse, which changes nothing for the others, and Gloo's waiting for the kernel's ticks.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sysconfig
from pathlib import Path

from locks import LOCKS, SetupError, cache_folder, lock_file, only_horovod, quota, table, version
from runner import run

HINT = "about 3 minutes on 2 cores"
TRIED = "GCC 12, 13 and 14 and clang 19 compile it; others: make CXX=/path/to/g++ CC=/path/to/gcc"


def compiler() -> str:
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["g++", "c++", "clang++"]:
        if found := shutil.which(name):
            return found
    raise SetupError(
        f"No C++ compiler found ({f'CXX={wanted}' if wanted else 'looked for g++, c++, clang++'}). "
        "Horovod is compiled from source: install one, for example the package g++ or "
        "build-essential, or name another with CXX=."
    )


def identity(cxx: str) -> str:
    """All that compiler and C++ library say of themselves: versions, target."""
    what = f"trying {cxx} (complete compilers come with the package g++; CXX= names another)"
    command = [cxx, "-x", "c++", "-E", "-dM", "-include", "string", os.devnull]
    return f"{cxx}\n{run(command, what)}"


def patches() -> list[Path]:
    return sorted((LOCKS / "recipes").glob(f"horovod-{version(only_horovod(), 'horovod')}-*.patch"))


def wheel_folder(*, with_mpi: bool) -> Path:
    """Cache folder of the Horovod wheel, keyed by all that its binary depends on."""
    parts = (
        only_horovod(), version(lock_file("ranks").read_text(), "tensorflow-cpu"),
        str(sysconfig.get_config_var("SOABI")), platform.machine(), "-".join(platform.libc_ver()),
        identity(compiler()), *(patch.read_text() for patch in patches()),
        "mpi" if with_mpi else "gloo",
    )  # fmt: skip
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder() / "wheels" / key


def apply_patches(source: Path) -> None:
    """Patch Horovod's unpacked source.

    Raises SetupError where a patch does not fit, or there is no git.
    """
    # of a repository around the cache, git would take paths to be those
    env = table.environment_of("git", os.environ)
    env["GIT_CEILING_DIRECTORIES"] = str(source.resolve().parent)
    for patch in patches():
        what = f"git apply of {patch.name}, which is for Horovod's source,"
        run(["git", "apply", "--verbose", str(patch)], what, cwd=source, env=env)


def build_environment(venv: Path, *, with_mpi: bool) -> dict[str, str]:
    """What pip, CMake and compilers see while Horovod is compiled."""
    env: dict[str, str] = table.environment_of("compiler", os.environ)
    env["HOME"] = str(venv)  # neither ~/.pydistutils.cfg nor another file of options there
    env["PIP_CONFIG_FILE"] = os.devnull
    env["PATH"] = f"{venv / 'bin'}{os.pathsep}{env.get('PATH', '')}"
    if "CXX" not in env:
        env.pop("CC", None)  # of another recipe
    env["CXX"] = compiler()
    env["HOROVOD_CMAKE"] = str(venv / "bin" / "cmake")
    env["MAKEFLAGS"] = f"-j{quota.usable_cores(len(os.sched_getaffinity(0)), quota.quotas_here())}"
    env["HOROVOD_WITH_TENSORFLOW"] = env["HOROVOD_WITH_GLOO"] = "1"
    env["HOROVOD_WITH_MPI" if with_mpi else "HOROVOD_WITHOUT_MPI"] = "1"
    env["HOROVOD_WITHOUT_PYTORCH"] = env["HOROVOD_WITHOUT_MXNET"] = "1"
    return env
