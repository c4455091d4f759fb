"""Prepare the Python environment in .venv from the lock files: once, visibly, repairably.

Runs on a bare Python 3.11 (python.sh finds or fetches it) with the standard library alone. Each
part (``login``, ``ranks``, ``dev``) leaves a stamp that holds the hash of its lock file; a part is
(re)installed when its stamp is missing or stale, and the stamp is written last, so an interrupted
set-up is taken up again by the next command. Horovod has no wheel: it is compiled here once and
kept in the user's cache under a key of everything that its binary depends on.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

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
    environment_of_train,
    errors_of_train,
    lock_file,
    only_horovod,
    pinned,
    pip_environment,
    refusal,
    without_horovod,
)

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
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
REQUEST_IS_WRONG = 2


def say(text: str) -> None:
    print(f"[setup] {text}", file=sys.stderr, flush=True)


def fingerprint(part: str, *, with_mpi: bool) -> str:
    """Hash of what an installed part depends on: its lock, the Python, and Horovod's options."""
    digest = hashlib.sha256(lock_file(part).read_bytes())
    digest.update(platform.python_version().encode())
    if part == "ranks":
        digest.update(lock_file("build").read_bytes())
        digest.update(b"mpi" if with_mpi else b"gloo")
    return digest.hexdigest()


def stamp(part: str) -> Path:
    return VENV / f".installed-{part}"


def is_current(part: str, *, with_mpi: bool) -> bool:
    path = stamp(part)
    if not (VENV / "bin" / "python").exists():  # a link into .python, and the checkout was moved
        return False
    return path.is_file() and path.read_text() == fingerprint(part, with_mpi=with_mpi)


def wants_mpi(told: str | None) -> bool:
    """MPI=1 or MPI=0 as told; untold, what this environment was made with, else without."""
    if told in ("0", "1"):
        return told == "1"
    return is_current("ranks", with_mpi=True)


@contextmanager
def only_one() -> Iterator[None]:
    """Two `make` at once must not install into one folder; the second waits for the first."""
    with (ROOT / ".setup.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is running in this checkout: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run_logged(
    command: Sequence[str], log: Path, what: str, env: dict[str, str] | None, hint: str = ""
) -> None:
    """Run a long command with its output in a log, and a sign of life every 15 seconds."""
    done = threading.Event()

    def tick() -> None:
        start = time.monotonic()
        while not done.wait(15):
            say(f"{what}: {time.monotonic() - start:.0f} s so far (output in {log})")

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        with log.open("ab") as out:
            begin = out.tell()
            code = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, env=env, check=False
            ).returncode
    finally:
        done.set()
        ticker.join()
    if code != 0:
        said = log.read_bytes()[begin:].decode(errors="replace")
        if error := first_error(said):
            raise SetupError(
                f"{what} failed (exit code {code}): {error}\nAll output is in {log}. {hint}"
            )
        tail = "\n".join(said.splitlines()[-15:])
        raise SetupError(f"{what} failed (exit code {code}). The end of {log}:\n{tail}")


def make_venv() -> None:
    python = VENV / "bin" / "python"
    if python.exists():
        command = [str(python), "-m", "pip", "--version"]
        probe = subprocess.run(command, capture_output=True, check=False)
        if probe.returncode == 0:
            return
        say("the environment in .venv is broken (interrupted?): making it anew")
        shutil.rmtree(VENV)
    elif VENV.exists():
        shutil.rmtree(VENV)
    say(f"making a Python {platform.python_version()} environment in .venv")
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        raise SetupError(
            f"python -m venv failed: {made.stdout.strip()} {made.stderr.strip()}\n"
            "Expected a complete Python 3.11; on Debian or Ubuntu install the package python3-venv."
        )


def pip(*arguments: str) -> list[str]:
    quiet = ("--disable-pip-version-check", "--no-input", "--quiet")
    return [str(VENV / "bin" / "python"), "-m", "pip", *arguments, *quiet]


@cache
def ways() -> dict[str, str]:
    """What pip sees."""
    return pip_environment([str(VENV / "bin" / "python"), "-m", "pip"])


def check_import(part: str) -> None:
    """Every package is there as locked, and the largest can be imported; SetupError else: what pip
    ended well with may be elsewhere, or for another system."""
    lines = without_horovod(lock_file(part).read_text()).splitlines()
    pins = [line.split()[0] for line in lines if line[:1].isalnum() and "==" in line]
    command = [str(VENV / "bin" / "python"), "-c", PROBE, *pins, "--", *IMPORTED[part]]
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    found = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if found.returncode != 0:
        raise SetupError(
            f"the packages of {part} were installed, but cannot be used: "
            f"{(found.stderr.strip().splitlines() or ['no word'])[-1]}\n"
            f"All output of pip is in {VENV / 'setup.log'}. Remove .venv, then make the same again."
        )


def install_lock(part: str, log: Path) -> None:
    text = lock_file(part).read_text()
    count = sum(line[:1].isalnum() and "==" in line for line in text.splitlines())
    say(f"installing {count} pinned packages ({part})")
    requirements = VENV / f"{part}.requirements"
    requirements.write_text(without_horovod(text))
    run_logged(
        pip("install", "--require-hashes", "--no-deps", "-r", str(requirements)),
        log, f"installing {part} packages", ways(),
    )  # fmt: skip


def horovod_wheel(log: Path, *, with_mpi: bool) -> Path:
    """The wheel from the cache, or built into it.

    Without build isolation, because the binary must be linked against the pinned TensorFlow.
    """
    folder = wheel_folder(with_mpi=with_mpi)
    ready = sorted(folder.glob("horovod-*.whl"))
    if ready:
        say(f"Horovod: using the wheel built here before ({ready[0]})")
        return ready[0]
    install_lock("build", log)
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    requirement = VENV / "horovod.requirements"
    requirement.write_text(only_horovod(lock_file("ranks").read_text()))
    version = pinned("ranks", "horovod")
    say(f"building Horovod {version} from source: {HINT}, once")
    try:
        run_logged(
            pip("download", "--require-hashes", "--no-deps", "--no-build-isolation",
                "-d", str(work), "-r", str(requirement)),
            log, "downloading Horovod", ways(),
        )  # fmt: skip
        shutil.unpack_archive(work / f"horovod-{version}.tar.gz", work)
        source = work / f"horovod-{version}"
        if applied := apply_patches(source):
            say(f"patched: {', '.join(applied)} (containers/patches)")
        run_logged(
            pip("wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", str(work),
                str(source)),
            log, "building Horovod", build_environment(VENV, with_mpi=with_mpi), TRIED,
        )  # fmt: skip
        built = next(work.glob("horovod-*.whl"))
        folder.mkdir(exist_ok=True)
        return built.rename(folder / built.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def install_horovod(log: Path, *, with_mpi: bool) -> None:
    wheel = horovod_wheel(log, with_mpi=with_mpi)
    run_logged(
        pip("install", "--no-deps", "--force-reinstall", "--no-index", str(wheel)),
        log, "installing Horovod", ways(),
    )  # fmt: skip
    probe = "import horovod.tensorflow as h; assert h.gloo_built(); print(h.mpi_built())"
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    found = subprocess.run(
        [str(VENV / "bin" / "python"), "-c", probe],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    if found.returncode != 0:
        shutil.rmtree(wheel.parent)  # do not offer a wheel again that cannot be imported
        raise SetupError(f"Horovod was built but cannot be imported:\n{found.stderr.strip()}")


def prepare(target: str, *, with_mpi: bool) -> None:
    parts = PARTS[target]
    if all(is_current(part, with_mpi=with_mpi) for part in parts):
        return
    with only_one():
        todo = [part for part in parts if not is_current(part, with_mpi=with_mpi)]
        if not todo:
            return
        start = time.monotonic()
        make_venv()
        log = VENV / "setup.log"
        for part in todo:
            stamp(part).unlink(missing_ok=True)
            install_lock(part, log)
            if part == "ranks":
                install_horovod(log, with_mpi=with_mpi)
            check_import(part)
            stamp(part).write_text(fingerprint(part, with_mpi=with_mpi))
        say(f"ready after {time.monotonic() - start:.0f} s")


def unsupported(target: str, system: str, machine: str) -> str | None:
    """Why this machine cannot have a part; None where it can."""
    if "ranks" not in PARTS[target] or (system, machine) == ("Linux", "x86_64"):
        return None
    return (
        f"found {system} on {machine}, expected Linux on x86_64: TensorFlow 2.15 with its addons "
        "has wheels for nothing else. What only plans and reports works here (make plan, report)."
    )


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in PARTS:
        say(f"usage: setup.py {'|'.join(PARTS)}; found: {' '.join(arguments) or 'nothing'}")
        return REQUEST_IS_WRONG
    if sys.version_info[:2] != (3, 11):
        say(
            f"found Python {platform.python_version()} ({sys.executable}), expected 3.11. "
            f"Run make, or: sh containers/python.sh containers/setup.py {arguments[0]}"
        )
        return REQUEST_IS_WRONG
    if error := unsupported(arguments[0], platform.system(), platform.machine()):
        say(error)
        return REQUEST_IS_WRONG
    return guarded(lambda: prepare(arguments[0], with_mpi=wants_mpi(os.environ.get("MPI"))))


def guarded(action: Callable[[], None]) -> int:
    try:
        action()
    except SetupError as error:
        say(str(error))
        return REQUEST_IS_WRONG
    except OSError as error:
        say(f"cannot write the environment: {refusal(error)}; the next make goes on from here.")
        return REQUEST_IS_WRONG
    except KeyboardInterrupt:
        say("interrupted: the next make goes on from here")
        return 130
    return 0


if __name__ == "__main__":
    environment_of_train().enter("setup", os.environ)
    # ended by a batch system, we end pip with us before the lock is free for another set-up
    errors_of_train().interrupt_on_signals()
    sys.exit(main(sys.argv[1:]))
