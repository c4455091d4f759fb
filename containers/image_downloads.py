"""Python packages for an image, downloaded outside of it: so this machine's own pip configuration
(index, mirror, certificates, proxy) holds, and the build itself needs no package index."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from image_plan import entries
from locks import SetupError

#: Oldest to newest C library that wheels may be built for; Debian 12 has 2.36.
PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014",
             *(f"manylinux_2_{minor}" for minor in range(5, 37)))  # fmt: skip
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def sha256_of(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def missing(requirements: str, folder: Path) -> list[str]:
    """Packages of which the folder holds no file with one of the locked hashes.

    Names only choose what is hashed: gigabytes of another image's packages need not be read.
    """
    files = [(normalized(file.name), file) for file in folder.iterdir() if file.is_file()]

    def present(package: str, hashes: set[str]) -> bool:
        start = f"{normalized(package)}-"
        return any(name.startswith(start) and sha256_of(file) in hashes for name, file in files)

    return [name for name, entry in entries(requirements).items()
            if not present(name, set(HASH.findall(entry)))]  # fmt: skip


def usable_pip(venv: Path) -> list[str]:
    """This Python's own pip, else that of an environment made for it."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    python = venv / "bin" / "python"
    if not python.exists():
        made = subprocess.run(
            [sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            raise SetupError(
                f"{sys.executable} has neither pip nor a complete venv module: "
                f"{made.stdout.strip()[-300:]}\nOn Debian or Ubuntu install python3-venv."
            )
    return [str(python), "-m", "pip"]


def download_command(
    pip: list[str], requirements: Path, folder: Path, machine: str, *, source: bool
) -> list[str]:
    """pip's command for wheels of the image's Python, whatever Python runs pip; or for sources."""
    kind = [] if source else [
        "--only-binary=:all:", "--implementation=cp", "--python-version=3.11",
        *(f"--platform={platform}_{machine}" for platform in PLATFORMS),
    ]  # fmt: skip
    return [*pip, "download", "--quiet", "--no-input", "--disable-pip-version-check",
            "--no-cache-dir", "--no-deps", "--require-hashes", *kind,
            "-d", str(folder), "-r", str(requirements)]  # fmt: skip
