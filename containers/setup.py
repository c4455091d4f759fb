"""Prepare the Python environment that `.venv` leads to, from the lock files: once, visibly.

Runs on a bare Python 3.11 (python.sh finds or fetches it) with the standard library alone. Each
part (``login``, ``ranks``, ``dev``) leaves a stamp in the environment, which is written last: an
interrupted set-up is taken up again by the next command. What depends on other locks or another
Python is another environment (environments.py). Horovod has no wheel: it is compiled here once
and kept in the user's cache under a key of everything that its binary depends on.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import locks
from environments import Place, clean, link_named, only_set_up, place_for, say
from horovod_build import HINT, TRIED, apply_patches, build_environment, wheel_folder
from runner import PLACES, REQUEST_IS_WRONG, check_room, guarded, logged, pip_environment, run

PARTS = {"login": ("login",), "ranks": ("login", "ranks"), "dev": ("login", "ranks", "dev")}
#: Imported once before a part counts as installed: what pip ended well with may be elsewhere.
IMPORTED = {
    "login": ("pydantic", "pandas", "matplotlib.figure", "sklearn", "submitit", "ruamel.yaml"),
    "ranks": ("tensorflow_addons", "horovod.tensorflow"),
    "dev": ("pytest", "mypy"),
}
#: Bytes of an environment's parts, as measured.
NEEDED = {"login": 0.5e9, "ranks": 1.4e9, "dev": 0.2e9}
#: Bytes of their wheels, which pip lays into the folder for temporary files.
WHEELS = {"login": 0.15e9, "ranks": 0.35e9, "dev": 0.05e9}


def make_venv(place: Place) -> None:
    stamped = any(place.environment.glob(".installed-*"))
    if stamped and place.python.exists():
        return
    say(f"making a Python {platform.python_version()} environment in {place.environment}")
    # without a stamp nothing can have started from it, and what an interruption left is replaced
    fresh = [] if stamped else ["--clear"]
    run([sys.executable, "-m", "venv", *fresh, str(place.environment)], "python -m venv",
        hint="Expected a complete Python 3.11 (on Debian or Ubuntu the package python3-venv), and "
        f"room in {place.folder}.")  # fmt: skip


@cache
def ways(place: Place) -> dict[str, str]:
    """What pip sees."""
    return pip_environment([str(place.python), "-P", "-m", "pip"])


def run_pip(
    place: Place, what: str, *arguments: str, env: dict[str, str] | None = None, hint: str = ""
) -> None:
    """Run the environment's pip with its output in a log."""
    quiet = ("--disable-pip-version-check", "--no-input", "--quiet")
    command = [str(place.python), "-P", "-m", "pip", *arguments, *quiet]
    logged(command, place.log, what, say, env=env or ways(place), hint=hint)


def check_import(place: Place, part: str) -> None:
    """Raises SetupError where the largest packages of a part cannot be imported."""
    run([str(place.python), "-c", f"import {', '.join(IMPORTED[part])}"],
        f"importing the packages of {part}, which were installed,",
        hint=f"All output is in {place.log}. Remove {place.environment} (and Horovod's wheel in "
        f"{locks.cache_folder()}, if that is what is named), then make the same again.",
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})  # fmt: skip


def packages(part: str) -> str:
    return locks.joined(locks.entries(locks.lock_file(part).read_text()), "horovod")


def requirements(place: Place, name: str, text: str) -> str:
    """A file for pip."""
    file = place.environment / f"{name}.requirements"
    file.write_text(text)
    return str(file)


def install_lock(place: Place, part: str) -> None:
    say(f"installing {len(locks.entries(packages(part)))} pinned packages ({part})")
    listing = requirements(place, part, packages(part))
    hashed = ("--require-hashes", "--no-deps")
    run_pip(place, f"installing {part} packages", "install", *hashed, "-r", listing)


def horovod_wheel(place: Place) -> Path:
    """The wheel from the cache, or built into it.

    Without build isolation, because the binary must be linked against the pinned TensorFlow.
    """
    folder = wheel_folder(with_mpi=place.with_mpi)
    locks.check_own(folder)
    ready = sorted(folder.glob("horovod-*.whl"))
    if ready:
        say(f"Horovod: using the wheel built here before ({ready[0]})")
        return ready[0]
    install_lock(place, "build")
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    release = f"horovod-{locks.version(locks.only_horovod(), 'horovod')}"
    say(f"building {release} from source: {HINT}, once")
    try:
        run_pip(place, "downloading Horovod", "download", "--require-hashes", "--no-deps",
                "--no-build-isolation", "-d", str(work), "-r",
                requirements(place, "horovod", locks.only_horovod()))  # fmt: skip
        shutil.unpack_archive(work / f"{release}.tar.gz", work)
        apply_patches(work / release)
        run_pip(place, "building Horovod", "wheel", "--no-deps", "--no-build-isolation",
                "--no-cache-dir", "-w", str(work), str(work / release), hint=TRIED,
                env=build_environment(place.environment, with_mpi=place.with_mpi))  # fmt: skip
        built = next(work.glob("horovod-*.whl"))
        folder.mkdir(exist_ok=True)
        return built.rename(folder / built.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def prepare(target: str, place: Place) -> None:
    """Install what is missing, then let the link lead there.

    Raises:
        SetupError: it cannot be made.
        OSError: a folder cannot be written.
    """
    parts = PARTS[target]
    locks.check_own(place.folder)
    if not place.missing(parts) and place.is_linked():
        return
    with only_set_up(place.link):
        start = time.monotonic()
        if todo := place.missing(parts):
            check_room(place.folder, sum(NEEDED[part] for part in todo), say)
            check_room(Path(tempfile.gettempdir()), max(WHEELS[part] for part in todo), say)
            say(f"empty caches take up to as much again: pip's, and {locks.cache_folder()}")
            make_venv(place)
        for part in todo:
            place.stamp(part).unlink(missing_ok=True)
            install_lock(place, part)
            if part == "ranks":
                run_pip(place, "installing Horovod", "install", "--no-deps", "--force-reinstall",
                        "--no-index", str(horovod_wheel(place)))  # fmt: skip
            check_import(place, part)
            place.stamp(part).touch()
        place.switch()
        say(f"ready after {time.monotonic() - start:.0f} s")


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in (*PARTS, "clean"):
        say(f"usage: setup.py {'|'.join(PARTS)}|clean; found: {' '.join(arguments) or 'nothing'}")
        return REQUEST_IS_WRONG
    what, told = arguments[0], os.environ.get("VENV")
    if what == "clean":
        force = os.environ.get("FORCE") == "1"
        return guarded(lambda: clean(link_named(told), force=force), say, PLACES)
    error, system, machine = "", platform.system(), platform.machine()
    if "ranks" in PARTS[what] and (system, machine) != ("Linux", "x86_64"):
        error = (
            f"found {system} on {machine}, expected Linux on x86_64: TensorFlow 2.15 with its "
            "addons has wheels for nothing else. Plans and reports work here (make plan, report)."
        )
    if sys.version_info[:2] != (3, 11):
        error = (
            f"found Python {platform.python_version()} ({sys.executable}), expected 3.11. "
            f"Run make, or: sh containers/python.sh containers/setup.py {what}"
        )
    if error:
        say(error)
        return REQUEST_IS_WRONG
    # others may use what is installed, and only its owner changes it
    os.umask(0o022 if os.geteuid() == 0 else os.umask(0o022) | 0o022)
    hint = f"The environment is not up to date: ask its owner to run make setup, or {PLACES}"
    mpi = os.environ.get("MPI")
    return guarded(lambda: prepare(what, place_for(link_named(told), mpi)), say, hint)


if __name__ == "__main__":
    locks.table.enter("setup", os.environ)
    locks.run(lambda: main(sys.argv[1:]))
