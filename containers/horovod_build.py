"""How Horovod is compiled: with what, which patches and options, and where its wheel is kept.

Horovod 0.28.1 is older than GCC 13. Its source is patched after the hash was checked: what newer
compilers refuse, which changes nothing for the others, and Gloo's waiting for the kernel's ticks.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from locks import (
    LOCKS,
    SetupError,
    cache_folder,
    environment_of_train,
    lock_file,
    only_horovod,
    pinned,
)

HINT = "about 3 minutes on 2 cores"
TRIED = "GCC 12, 13 and 14 and clang 19 compile it; another compiler: make CXX=/path/to/g++ ..."


def compiler() -> str:
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["g++", "c++", "clang++"]:
        if found := shutil.which(name):
            return found
    if wanted:
        raise SetupError(
            f"CXX={wanted} found, expected a C++ compiler: there is no such program. Name another, "
            "or unset CXX: then one on PATH is used"
        )
    raise SetupError(
        "No C++ compiler found (looked for g++, c++, clang++). Horovod is compiled from "
        "source: install one, for example the package g++ or build-essential."
    )


def identity(cxx: str) -> str:
    """All that compiler and C++ library say of themselves: versions, target."""
    command = [cxx, "-x", "c++", "-E", "-dM", "-include", "string", os.devnull]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        said = first_error(found.stderr) or found.stderr.strip() or "it says nothing"
        raise SetupError(
            f"{cxx} cannot compile C++ (exit code {found.returncode}): {said}\n"
            "Expected a complete compiler, for example the package g++; name another with CXX=."
        )
    return f"{cxx}\n{found.stdout}"


def patches() -> list[Path]:
    version = pinned("ranks", "horovod")
    return sorted((LOCKS / "patches").glob(f"horovod-{version}-*.patch"))


def wheel_folder(*, with_mpi: bool) -> Path:
    """Cache folder of the Horovod wheel, keyed by all that its binary depends on."""
    parts = (
        only_horovod(lock_file("ranks").read_text()), pinned("ranks", "tensorflow-cpu"),
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
    env = environment_of_train().environment_of("git", os.environ)
    env["GIT_CEILING_DIRECTORIES"] = str(source.resolve().parent)
    for patch in patches():
        try:
            done = subprocess.run(
                ["git", "apply", "--verbose", str(patch)],
                cwd=source, env=env, capture_output=True, text=True, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise SetupError("no git found, expected it for patches: install git") from None
        if done.returncode != 0:
            raise SetupError(f"{patch.name} does not fit Horovod's source: {done.stderr.strip()}")


def first_error(output: str) -> str | None:
    """Where a compiler or CMake first says what is wrong; what comes after follows from it."""
    # at a place in the source; of the compiler as a program (killed, say); of the linker
    kinds = (
        r"\S+:\d+:.*\berror:",
        r"\S+: (?:fatal )?error:",
        r"\S*\bld: (?!warning)",
        "CMake Error",
    )
    found = re.search(rf"(?m)^\s*((?:{'|'.join(kinds)}).*)$", output)
    if found and found.group(1).startswith("CMake Error"):  # what is wrong stands on the next lines
        reason = output[found.end() :].partition("\n\n")[0]
        return " ".join([found.group(1), *reason.split()])
    return found.group(1) if found else None


def c_compiler(cxx: str) -> str | None:
    """The one beside a C++ compiler, as gcc-13 beside g++-13; None where CMake has to find it."""
    path = Path(cxx)
    for name, own in (("clang++", "clang"), ("g++", "gcc"), ("c++", "cc")):
        if name in path.name:
            found = path.with_name(path.name.replace(name, own))
            return str(found) if found.exists() else None
    return None


def build_environment(venv: Path, *, with_mpi: bool) -> dict[str, str]:
    """What pip, CMake and compilers see while Horovod is compiled."""
    env: dict[str, str] = environment_of_train().environment_of("compiler", os.environ)
    env["HOME"] = str(venv)  # neither ~/.pydistutils.cfg nor another file of options there
    env["PIP_CONFIG_FILE"] = os.devnull
    env["PATH"] = f"{venv / 'bin'}{os.pathsep}{env.get('PATH', '')}"
    if "CXX" not in env:
        env.pop("CC", None)  # of another recipe
    env["CXX"] = compiler()
    if "CC" not in env and (own := c_compiler(env["CXX"])):  # Gloo's CMake files ask for one
        env["CC"] = own
    env["HOROVOD_CMAKE"] = str(venv / "bin" / "cmake")
    env["MAKEFLAGS"] = f"-j{len(os.sched_getaffinity(0))}"
    env["HOROVOD_WITH_TENSORFLOW"] = env["HOROVOD_WITH_GLOO"] = "1"
    env["HOROVOD_WITH_MPI" if with_mpi else "HOROVOD_WITHOUT_MPI"] = "1"
    env["HOROVOD_WITHOUT_PYTORCH"] = env["HOROVOD_WITHOUT_MXNET"] = "1"
    return env
