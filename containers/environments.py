"""Where Python environments lie, which of them is used, and when an old one may go.

`.venv`, or what VENV= names, is a link. It leads to an environment in the folder beside it
(`.venvs`), whose name says what it depends on: the locks, the Python that made it, Horovod's MPI.
What differs is a new environment beside the others, and the link is switched in one step when that
is complete. An environment in use is never rebuilt or removed: running sweeps and waiting jobs go
by its own name.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from horovod_build import patches
from locks import LOCKS, SetupError, lock_file
from runner import only_one
from users import closed_folder

ROOT = LOCKS.parent
LOCKED = ("login", "ranks", "build", "dev")
#: Beside the environments: Python, where it had to be fetched.
PYTHONS = "python"
GB = 1e9
#: Our jobs run a copy of the code, in a folder that ends so.
JOB_FOLDERS = ("squeue", "--noheader", "--format=%Z")
OUR_JOB = re.compile(r"(?m)/\.code/[0-9a-f]{12}$")


def say(text: str) -> None:
    print(f"[setup] {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Place:
    """One link, and the environment that it should lead to."""

    link: Path
    name: str
    with_mpi: bool = False

    @property
    def folder(self) -> Path:
        """Of this environment and all earlier ones."""
        return folder_of(self.link)

    @property
    def environment(self) -> Path:
        return self.folder / self.name

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    def stamp(self, part: str) -> Path:
        return self.environment / f".installed-{part}"

    def missing(self, parts: Iterable[str]) -> list[str]:
        """Parts to install; all of them where the environment's Python is gone."""
        there = self.python.exists()
        return [part for part in parts if not (there and self.stamp(part).is_file())]

    def is_linked(self) -> bool:
        return self.link.is_symlink() and self.link.resolve() == self.environment.resolve()

    def switch(self) -> None:
        """Let the link lead here, in one step."""
        if self.link.is_dir() and not self.link.is_symlink():
            # of an earlier version, which built in this very place: it stays, as the others do
            self.link.rename(self.folder / f"before-{time.time():.0f}")
        new = self.link.with_name(f"{self.link.name}.{os.getpid()}.new")
        new.symlink_to(os.path.relpath(self.environment, self.link.parent))
        new.replace(self.link)


def folder_of(link: Path) -> Path:
    return link.with_name(f"{link.name}s")


def link_named(told: str | None) -> Path:
    """VENV=, else `.venv` in the checkout."""
    return Path(told).expanduser().absolute() if told else ROOT / ".venv"


def place_for(link: Path, mpi: str | None) -> Place:
    """``mpi``: MPI=1 or MPI=0 as given; not given, what the link's environment was made with."""
    with_mpi = mpi == "1" if mpi in ("0", "1") else link.resolve().name.endswith("-mpi")
    locked = hashlib.sha256()
    for file in (*map(lock_file, LOCKED), *patches()):
        locked.update(file.read_bytes())
    # two Pythons of one version may be of two modules, and only one of them starts here
    python = hashlib.sha256(os.path.realpath(sys.executable).encode())
    name = f"{locked.hexdigest()[:8]}-{python.hexdigest()[:4]}{'-mpi' if with_mpi else ''}"
    return Place(link, name, with_mpi)


def waits(folder: Path) -> None:
    say(f"another set-up is running in {folder}: waiting for it")


def check_others(place: Place, *, named: bool) -> None:
    """An environment that others can see, they must be able to start.

    ``named``: the user chose this Python with PYTHON=.

    Raises SetupError where root's Python is in a folder that only root can enter.
    """
    python = Path(sys.executable)
    way = closed_folder(python) or (None if python.stat().st_mode & stat.S_IXOTH else python)
    if os.geteuid() != 0 or closed_folder(place.environment) or not way:
        return
    fault = (
        f"only root can enter {way}: nobody else can start an environment in {place.folder} made "
        f"with {python}"
    )
    if not named:
        raise SetupError(f"{fault}. Name another with PYTHON=, or PYTHON={python} to have it so")
    say(fault)


def check_room(needs: dict[Path, float]) -> None:
    """``needs``: bytes that will be written into folders, which need not be there yet.

    A quota is only seen where the file system shows it as free space; others refuse while writing.

    Raises SetupError where a file system has less, before anything is written.
    """
    devices: dict[int, list[Path]] = {}
    for folder in needs:
        device = _there(folder).stat().st_dev
        devices.setdefault(device, []).append(folder)
    for folders in devices.values():
        free, needed = shutil.disk_usage(_there(folders[0])).free, sum(needs[f] for f in folders)
        parts = " and ".join(f"{needs[folder] / GB:.1f} GB in {folder}" for folder in folders)
        if free < needed:
            raise SetupError(
                f"{free / GB:.1f} GB are free, expected room for {parts}. Free some, or name other "
                "places: VENV=PATH for the environment, XDG_CACHE_HOME=DIR for the cache"
            )
        say(f"up to {parts}; free: {free / GB:.1f} GB")


def _there(path: Path) -> Path:
    return next(p for p in (path, *path.parents) if p.exists())


def process_in(folder: Path) -> int | None:
    """Id of a process on this machine that runs from the folder; of other users' processes only the
    command line is seen, unless root looks."""
    needle = os.fsencode(folder.resolve()) + b"/"
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        for view in ("cmdline", "maps"):
            with suppress(OSError):
                if needle in (process / view).read_bytes():
                    return int(process.name)
    return None


def waiting_jobs() -> str:
    """Why jobs of Slurm may still need an environment; '' where there is no Slurm, or none does."""
    if shutil.which(JOB_FOLDERS[0]) is None:
        return ""
    asked = subprocess.run(JOB_FOLDERS, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        return "Slurm does not answer, and jobs of this suite may be in its queue"
    jobs = len(OUR_JOB.findall(asked.stdout))
    return f"{jobs} jobs of this suite are in Slurm's queue" if jobs else ""


def clean(link: Path, *, force: bool) -> None:
    """Remove all environments that nothing uses, and the Python that was fetched for them; no data.

    ``force``: also where Slurm's queue has jobs that may need one.

    Raises SetupError where that is so, or not known, and it is not forced.
    """
    folder = folder_of(link)
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    fetched = [path for path in (folder / PYTHONS, ROOT / ".python") if path.is_dir()]
    built = [path for path in there if path.is_dir() and path not in fetched]
    if link.is_dir() and not link.is_symlink():
        built.append(link)  # of an earlier version
    if not built and not fetched:
        say(f"there is no environment in {folder}: nothing was removed")
        return
    if not force and (why := waiting_jobs()):
        raise SetupError(f"{why}: nothing was removed. FORCE=1 removes what no process uses here")
    with only_one(folder, lambda: waits(folder)):
        kept = [path for path in built if not _removed(path)]
        if not kept:  # what is left was made with one of these
            kept = [path for path in fetched if not _removed(path)]
        if link.is_symlink() and not link.exists():
            link.unlink()
        if not kept:
            shutil.rmtree(folder)
    say("data sets, prepared data, results and site files were left")


def _removed(path: Path) -> bool:
    if user := process_in(path):
        say(f"left {path}: process {user} uses it")
        return False
    say(f"removing {path}")
    shutil.rmtree(path)
    return True
