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
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from environments import (
    Place,
    check_others,
    check_room,
    clean,
    link_named,
    place_for,
    say,
    waits,
)
from horovod_build import (
    HINT,
    TRIED,
    apply_patches,
    build_environment,
    first_error,
    wheel_folder,
)
from locks import (
    SetupError,
    cache_folder,
    environment_of_train,
    errors_of_train,
    lock_file,
    only_horovod,
    pinned,
    pins,
    pip_environment,
    without_horovod,
)
from runner import logged, only_one, tail

PARTS = {"login": ("login",), "ranks": ("login", "ranks"), "dev": ("login", "ranks", "dev")}
#: Imported once before a part counts as installed.
IMPORTED = {
    "login": ("pydantic", "pandas", "matplotlib.figure", "sklearn", "submitit", "ruamel.yaml"),
    "ranks": ("tensorflow_addons",),  # Horovod is, when it is installed
    "dev": ("pytest", "mypy"),
}
PROBE = """
import importlib, sys
from importlib.metadata import version
end = sys.argv.index("--")
for name, wanted in (pin.split("==") for pin in sys.argv[1:end]):
    found = version(name)
    assert found == wanted, f"{name} {found} found, expected {wanted}"
for module in sys.argv[end + 1 :]:
    importlib.import_module(module)
"""
#: Bytes of an environment's parts as measured, and as much again for unpacking and the caches.
NEEDED = {"login": 0.5e9, "ranks": 1.6e9, "dev": 0.2e9}
CACHED = {"login": 0.2e9, "ranks": 1.6e9, "dev": 0.1e9}
FULL = re.compile("No space left on device|Disk quota exceeded")
ROOM = (
    "free some, or name other places: VENV=PATH for the environment, XDG_CACHE_HOME=DIR for the "
    "caches"
)
REQUEST_IS_WRONG = 2


def run_logged(
    command: Sequence[str], log: Path, what: str, env: dict[str, str] | None, hint: str = ""
) -> None:
    """Run a long command with its output in a log, and a sign of life every 15 seconds."""

    def alive(seconds: float, _: str) -> None:
        say(f"{what}: {seconds:.0f} s so far (output in {log})")

    code, said = logged(command, log, alive, what, env=env)
    if code != 0:
        if full := FULL.search(said):
            raise SetupError(f"{what} failed ({full.group()}; all output is in {log}): {ROOM}")
        if error := first_error(said):
            raise SetupError(
                f"{what} failed (exit code {code}): {error}\nAll output is in {log}. {hint}"
            )
        raise SetupError(f"{what} failed (exit code {code}). The end of {log}:\n{tail(said)}")


def make_venv(place: Place) -> None:
    probe = [str(place.python), "-m", "pip", "--version"]
    if (
        place.python.exists()
        and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    ):
        return
    say(f"making a Python {platform.python_version()} environment in {place.environment}")
    # without a stamp nothing can have started from it, and what an interruption left is replaced
    fresh = [] if any(place.environment.glob(".installed-*")) else ["--clear"]
    made = subprocess.run(
        [sys.executable, "-m", "venv", *fresh, str(place.environment)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        raise SetupError(
            f"python -m venv failed: {made.stdout.strip()} {made.stderr.strip()}\n"
            "Expected a complete Python 3.11; on Debian or Ubuntu install the package python3-venv."
        )


def pip(place: Place, *arguments: str) -> list[str]:
    quiet = ("--disable-pip-version-check", "--no-input", "--quiet")
    return [str(place.python), "-m", "pip", *arguments, *quiet]


@cache
def ways(place: Place) -> dict[str, str]:
    """What pip sees."""
    return pip_environment([str(place.python), "-m", "pip"])


def run_inside(place: Place, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in the environment's Python."""
    return subprocess.run(
        [str(place.python), "-c", code, *arguments], capture_output=True, text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, check=False,
    )  # fmt: skip


def check_import(place: Place, part: str) -> None:
    """Every package is there as locked, and the largest can be imported; SetupError else: what pip
    ended well with may be elsewhere, or for another system."""
    wanted = pins(without_horovod(lock_file(part).read_text()))
    found = run_inside(place, PROBE, *wanted, "--", *IMPORTED[part])
    if found.returncode != 0:
        raise SetupError(
            f"the packages of {part} were installed, but cannot be used: "
            f"{(found.stderr.strip().splitlines() or ['no word'])[-1]}\n"
            f"All output is in {place.environment / 'setup.log'}. Remove {place.environment}, then "
            "make the same again."
        )


def install_lock(place: Place, part: str, log: Path) -> None:
    text = lock_file(part).read_text()
    say(f"installing {len(pins(text))} pinned packages ({part})")
    requirements = place.environment / f"{part}.requirements"
    requirements.write_text(without_horovod(text))
    run_logged(
        pip(place, "install", "--require-hashes", "--no-deps", "-r", str(requirements)),
        log, f"installing {part} packages", ways(place),
    )  # fmt: skip


def horovod_wheel(place: Place, log: Path, *, with_mpi: bool) -> Path:
    """The wheel from the cache, or built into it.

    Without build isolation, because the binary must be linked against the pinned TensorFlow.
    """
    folder = wheel_folder(with_mpi=with_mpi)
    ready = sorted(folder.glob("horovod-*.whl"))
    if ready:
        say(f"Horovod: using the wheel built here before ({ready[0]})")
        return ready[0]
    install_lock(place, "build", log)
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    requirement = place.environment / "horovod.requirements"
    requirement.write_text(only_horovod(lock_file("ranks").read_text()))
    version = pinned("ranks", "horovod")
    say(f"building Horovod {version} from source: {HINT}, once")
    try:
        run_logged(
            pip(place, "download", "--require-hashes", "--no-deps", "--no-build-isolation",
                "-d", str(work), "-r", str(requirement)),
            log, "downloading Horovod", ways(place),
        )  # fmt: skip
        shutil.unpack_archive(work / f"horovod-{version}.tar.gz", work)
        source = work / f"horovod-{version}"
        apply_patches(source)
        run_logged(
            pip(place, "wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir",
                "-w", str(work), str(source)),
            log, "building Horovod", build_environment(place.environment, with_mpi=with_mpi), TRIED,
        )  # fmt: skip
        built = next(work.glob("horovod-*.whl"))
        folder.mkdir(exist_ok=True)
        return built.rename(folder / built.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def install_horovod(place: Place, log: Path, *, with_mpi: bool) -> None:
    wheel = horovod_wheel(place, log, with_mpi=with_mpi)
    run_logged(
        pip(place, "install", "--no-deps", "--force-reinstall", "--no-index", str(wheel)),
        log, "installing Horovod", ways(place),
    )  # fmt: skip
    found = run_inside(
        place, "import horovod.tensorflow as h; assert h.gloo_built(); print(h.mpi_built())"
    )
    if found.returncode != 0:
        shutil.rmtree(wheel.parent)  # do not offer a wheel again that cannot be imported
        raise SetupError(f"Horovod was built but cannot be imported:\n{found.stderr.strip()}")


def prepare(target: str, place: Place, *, named: bool = False) -> None:
    """Install what is missing, then let the link lead there.

    ``named``: the user chose this Python.

    Raises:
        SetupError: it cannot be made, or others could not start it.
        OSError: a folder cannot be written.
    """
    parts = PARTS[target]
    if not place.missing(parts) and place.is_linked():
        return
    place.folder.mkdir(parents=True, exist_ok=True)
    with only_one(place.folder, lambda: waits(place.folder)):
        start = time.monotonic()
        if todo := place.missing(parts):
            check_others(place, named=named)
            check_room({
                place.folder: sum(NEEDED[part] for part in todo),
                cache_folder(): sum(CACHED[part] for part in todo),
            })  # fmt: skip
            make_venv(place)
            install(place, todo)
        place.switch()
        say(f"ready after {time.monotonic() - start:.0f} s")


def install(place: Place, parts: Sequence[str]) -> None:
    log = place.environment / "setup.log"
    for part in parts:
        place.stamp(part).unlink(missing_ok=True)
        install_lock(place, part, log)
        if part == "ranks":
            install_horovod(place, log, with_mpi=place.with_mpi)
        check_import(place, part)
        place.stamp(part).touch()


def unsupported(target: str, system: str, machine: str) -> str | None:
    """Why this machine cannot have a part; None where it can."""
    if "ranks" not in PARTS[target] or (system, machine) == ("Linux", "x86_64"):
        return None
    return (
        f"found {system} on {machine}, expected Linux on x86_64: TensorFlow 2.15 with its addons "
        "has wheels for nothing else. What only plans and reports works here (make plan, report)."
    )


def main(arguments: Sequence[str], *, named: bool = False) -> int:
    """``named``: the user chose this Python, with PYTHON=."""
    if len(arguments) != 1 or arguments[0] not in (*PARTS, "clean"):
        say(f"usage: setup.py {'|'.join(PARTS)}|clean; found: {' '.join(arguments) or 'nothing'}")
        return REQUEST_IS_WRONG
    what, link = arguments[0], link_named(os.environ.get("VENV"))
    if what == "clean":
        return guarded(lambda: clean(link, force=os.environ.get("FORCE") == "1"), link)
    if sys.version_info[:2] != (3, 11):
        say(
            f"found Python {platform.python_version()} ({sys.executable}), expected 3.11. "
            f"Run make, or: sh containers/python.sh containers/setup.py {what}"
        )
        return REQUEST_IS_WRONG
    if error := unsupported(what, platform.system(), platform.machine()):
        say(error)
        return REQUEST_IS_WRONG
    place = place_for(link, os.environ.get("MPI"))
    return guarded(lambda: prepare(what, place, named=named), link)


def guarded(action: Callable[[], None], link: Path) -> int:
    try:
        action()
    except SetupError as error:
        say(str(error))
    except OSError as error:
        remedy = "ask its owner to run make setup, or name another with VENV=PATH"
        if error.errno in errors_of_train().FULL:
            remedy = ROOM
        say(f"the environment {link} is not up to date, and cannot be written ({error}): {remedy}")
    except KeyboardInterrupt:
        say("interrupted: the next make goes on from here")
        return 130
    else:
        return 0
    return REQUEST_IS_WRONG


if __name__ == "__main__":
    python_named = bool(os.environ.get("PYTHON"))
    environment_of_train().enter("setup", os.environ)
    # ended by a batch system, we end pip with us before the lock is free for another set-up
    errors_of_train().interrupt_on_signals()
    sys.exit(main(sys.argv[1:], named=python_named))
