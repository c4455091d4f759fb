"""How Horovod is compiled: with what, which patches and options, and where its wheel is kept.

Horovod 0.28.1 is older than GCC 13. What newer compilers refuse is patched in its source after the
hash was checked; such a patch is applied only where this compiler refuses a file that the patch
touches. One patch is for all: without it Gloo waits for the kernel's ticks (:data:`ALWAYS`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from locks import LOCKS, SetupError, environment_of_train, lock_file, only_horovod, pinned

#: Patches, by the end of their names, that every compiler and both images get.
ALWAYS = ("yield",)
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


def for_all(patch: Path) -> bool:
    return patch.stem.endswith(ALWAYS)


def wheel_folder(*, with_mpi: bool) -> Path:
    """Cache folder of the Horovod wheel, keyed by all that its binary depends on."""
    parts = (
        only_horovod(lock_file("ranks").read_text()), pinned("ranks", "tensorflow-cpu"),
        platform.python_version(), platform.machine(), "-".join(platform.libc_ver()),
        identity(compiler()), *(patch.read_text() for patch in patches()),
        "mpi" if with_mpi else "gloo",
    )  # fmt: skip
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache / "horoscale" / "wheels" / key


def refuses(cxx: str, source: Path, file: str) -> bool:
    """Whether the compiler finds fault with a header of the source when it reads that one alone."""
    folders = [source, *sorted((source / "third_party").glob("**/include"))]
    command = [cxx, "-std=c++14", "-fsyntax-only", "-x", "c++",
               *(f"-I{folder}" for folder in folders), str(source / file)]  # fmt: skip
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


def touched(patch: str) -> list[str]:
    return re.findall(r"(?m)^\+\+\+ b/(\S+)", patch)


def patched(text: str, patch: str, file: str) -> str:
    """The text of one file with a patch's changes to it; each must fit in exactly one place."""
    (changes,) = re.findall(rf"(?ms)^\+\+\+ b/{re.escape(file)}\n(.*?)(?=^--- |\Z)", patch)
    for hunk in re.split(r"(?m)^@@.*\n", changes)[1:]:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        if text.count(before) != 1:
            raise SetupError(f"A patch does not fit {file}: it was made for another Horovod")
        text = text.replace(before, "".join(line[1:] for line in lines if line[0] in " +"))
    return text


def apply_patches(source: Path) -> list[str]:
    """Patch Horovod's unpacked source as this compiler needs it, and with what is for all; names
    of what was applied."""
    cxx, applied = compiler(), []
    for path in patches():
        patch = path.read_text()
        if for_all(path) or any(refuses(cxx, source, file) for file in touched(patch)):
            for file in map(source.joinpath, touched(patch)):
                file.write_text(patched(file.read_text(), patch, str(file.relative_to(source))))
            applied.append(path.stem)
    return applied


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
