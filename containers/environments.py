"""Where Python environments lie, which of them is used, and when an old one may go.

`.venv`, or what VENV= names, is a link. It leads to an environment in the folder beside it
(`.venv.envs`), whose name says what it depends on: locks, Python, its path, Horovod's MPI. What
differs is a new environment beside the others, and the link is switched in one step when that is
complete. An environment in use is never rebuilt or removed: running sweeps and waiting jobs go by
its own name.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from os.path import realpath  # Path.resolve raises no OSError where links lead in a circle
from pathlib import Path

from horovod_build import patches
from locks import LOCKS, SetupError, lock_file
from runner import only_one, speaker

ROOT = LOCKS.parent
LOCKED = ("login", "ranks", "build", "dev")
#: Beside the environments: Python, where it had to be fetched.
PYTHONS = "python"
#: What lies beside them under other names is not ours.
OURS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}(-mpi)?")
_REMOVING = ".removing-"

say = speaker("setup")


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

    @property
    def log(self) -> Path:
        return self.environment / "setup.log"

    def stamp(self, part: str) -> Path:
        return self.environment / f".installed-{part}"

    def missing(self, parts: Iterable[str]) -> list[str]:
        """Parts to install; all of them where the environment's Python is gone."""
        there = self.python.exists()
        return [part for part in parts if not (there and self.stamp(part).is_file())]

    def is_linked(self) -> bool:
        return self.link.is_symlink() and realpath(self.link) == realpath(self.environment)

    def switch(self) -> None:
        """Let the link lead here, in one step."""
        new = self.link.with_name(f"{self.link.name}.{os.getpid()}.new")
        new.symlink_to(os.path.relpath(self.environment, self.link.parent))
        new.replace(self.link)


def folder_of(link: Path) -> Path:
    return link.with_name(f"{link.name}.envs")


def only_set_up(link: Path) -> AbstractContextManager[int]:
    """Two set-ups at once must not work in one folder."""
    folder = folder_of(link)
    says = f"another set-up is running in {folder}: waiting for it"
    return only_one(folder / ".lock", lambda: say(says))


def link_named(told: str | None) -> Path:
    """VENV=, else `.venv` in the checkout.

    Raises SetupError where something is there that this set-up did not make.
    """
    path = Path(told) if told else ROOT / ".venv"
    link = Path(realpath(path.parent), path.name)
    if link.is_symlink():
        if realpath((link.parent / link.readlink()).parent) == str(folder_of(link)):
            return link
    elif path.name not in ("", "..") and not link.exists():
        return link
    raise SetupError(
        f"{link} is there already, expected nothing or a link into {link}.envs. Remove the "
        "environment of an earlier version once its sweeps and jobs have ended; else name another "
        "place with VENV=PATH"
    )


def place_for(link: Path, mpi: str | None) -> Place:
    """``mpi``: MPI=1 or MPI=0 as given; not given, what the link's environment was made with."""
    with_mpi = mpi == "1" if mpi in ("0", "1") else realpath(link).endswith("-mpi")
    locked = hashlib.sha256()
    for file in (*map(lock_file, LOCKED), *patches()):
        locked.update(file.read_bytes())
    # two Pythons of one version may be of two modules, and only one of them starts here; the
    # programs of an environment name its path, which in a copied or moved checkout is another one
    places = f"{realpath(sys.executable)}\n{folder_of(link)}"
    here = hashlib.sha256(os.fsencode(places)).hexdigest()[:4]
    name = f"{locked.hexdigest()[:8]}-{here}{'-mpi' if with_mpi else ''}"
    return Place(link, name, with_mpi)


def process_in(folder: Path) -> int | None:
    """Id of a process on this machine that runs from the folder; of other users' processes only the
    command line is seen, unless root looks."""
    needle = os.fsencode(realpath(folder)) + b"/"
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        for view in ("cmdline", "maps"):
            with suppress(OSError):
                if needle in (process / view).read_bytes():
                    return int(process.name)
    return None


def clean(link: Path, *, force: bool) -> None:
    """Remove all environments that nothing uses, and the Python that was fetched for them; no data.

    Raises SetupError where that is not forced: a job in a queue needs its environment, and whether
    there is one cannot be seen from here.
    """
    folder = folder_of(link)
    fetched = folder / PYTHONS
    if not (folder / ".lock").is_file():  # set-up made nothing there
        say(f"there is no environment in {folder}: nothing was removed")
        return
    if not force:
        found = ", ".join(map(str, built(folder))) or "no environment"
        raise SetupError(
            f"found {found}: nothing was removed. Jobs of this suite that wait in a queue need "
            "their environment; where `squeue --me` shows none there, make clean FORCE=1 "
            "removes what no process uses here"
        )
    with only_set_up(link):
        for left in folder.glob(f"{_REMOVING}*"):  # by an interrupted one
            shutil.rmtree(left)
        # listed now: another set-up may have made one meanwhile
        kept = [path for path in built(folder) if not _removed(path)]
        if not kept and fetched.is_dir():  # the others were made with this one
            _removed(fetched)
        if link.is_symlink() and not link.exists():
            link.unlink()
    say("data sets, prepared data, results and site files were left")


def built(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if OURS.fullmatch(path.name))


def _removed(path: Path) -> bool:
    if user := process_in(path):
        say(f"left {path}: process {user} uses it")
        return False
    say(f"removing {path}, which no process seen on this machine uses")
    # in one step: half of it would pass for an environment
    shutil.rmtree(path.rename(path.with_name(f"{_REMOVING}{path.name}")))
    return True
