"""Environments beside each other: which is used, when a new one is made, when an old one may go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import environments
import locks
import pytest
import runner
import setup as setup_py
from environments import Place

from tests.sweeps import ROOT, ran


@pytest.fixture
def link(tmp_path: Path) -> Path:
    return tmp_path / "checkout" / ".venv"


@pytest.fixture
def place(link: Path) -> Place:
    """An environment with a Python, a stamp and nothing else, to which the link leads."""
    return made(link, "0123abcd-0123")


def made(link: Path, name: str) -> Place:
    place = Place(link, name)
    place.python.parent.mkdir(parents=True)
    (place.folder / ".lock").touch()
    shutil.copy(shutil.which("sleep") or "", place.python)
    place.stamp("login").touch()
    place.switch()
    return place


@pytest.fixture
def start() -> Iterator[Callable[[Place], None]]:
    """A program that runs from an environment, until the test ends."""
    running: list[subprocess.Popen[bytes]] = []
    yield lambda place: running.append(subprocess.Popen([place.python, "600"]))
    for process in running:
        process.kill()
        process.wait()


def test_other_locks_another_python_mpi_and_path_are_other_environments(
    link: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locks").mkdir()
    for name in environments.LOCKED:
        shutil.copy(locks.lock_file(name), tmp_path / "locks")
    monkeypatch.setattr("locks.LOCKS", tmp_path)
    names = [environments.place_for(link, mpi).name for mpi in (None, "0", "1")]
    assert names[0] == names[1] != names[2]
    (tmp_path / "locks" / "login.lock").write_text("changed==1\n")
    names.append(environments.place_for(link, None).name)
    other = tmp_path / "module" / "python3.11"  # of the same version, but only in some shells
    other.parent.mkdir()
    other.touch()
    monkeypatch.setattr(sys, "executable", str(other))
    names.append(environments.place_for(link, None).name)
    monkeypatch.setattr(environments, "patches", list)
    names.append(environments.place_for(link, None).name)
    copy = link.parent.with_name(os.fsdecode(b"copied\374")) / link.name  # no UTF-8
    names.append(environments.place_for(copy, None).name)
    assert len(set(names)) == 6


def test_the_choice_of_mpi_stays_until_told_otherwise(link: Path) -> None:
    made(link, "0123-mpi")
    assert environments.place_for(link, None).with_mpi
    assert not environments.place_for(link, "0").with_mpi


def test_the_link_is_switched_and_what_it_led_to_stays(place: Place) -> None:
    other = made(place.link, "89abcdef-4567-mpi")
    assert other.is_linked() and not place.is_linked() and place.python.exists()
    assert not place.link.readlink().is_absolute(), "a checkout may be moved"


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda link: link.symlink_to("conda")])
def test_what_set_up_did_not_make_is_refused_untouched(link: Path, make) -> None:
    """Seen: VENV=~/thesis was moved aside, and removed by the next make clean; an environment of an
    earlier version was a folder, from which sweeps may run."""
    mine = link.parent / "conda" / "mine"
    mine.mkdir(parents=True)
    make(link)
    for told in (str(link), "/"):
        with pytest.raises(locks.SetupError, match=r"is there already.*VENV=PATH"):
            environments.link_named(told)
    assert mine.exists()


def test_a_link_in_a_circle_is_refused(tmp_path: Path, monkeypatch, capsys) -> None:
    """Seen: a traceback, with the exit code of a failed cell."""
    (tmp_path / "circle").symlink_to("circle")
    monkeypatch.setenv("VENV", str(tmp_path / "circle" / ".venv"))
    assert setup_py.main(["login"]) == 2
    assert "Too many levels of symbolic links" in capsys.readouterr().err


def test_what_set_up_made_is_accepted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.link.parent)
    (place.link.parent / "in").mkdir()
    for told in (str(place.link), f"{place.link}/", ".venv", "in/../.venv", "../checkout/.venv"):
        assert environments.link_named(told) == place.link


@pytest.mark.parametrize("gone", ["bin/python", ".installed-login"])
def test_a_part_is_missing_without_its_stamp_or_a_python(place: Place, gone: str) -> None:
    assert place.missing(["login"]) == []
    (place.environment / gone).unlink()
    assert place.missing(["login"]) == ["login"]


def test_clean_leaves_what_a_process_uses_and_all_data(place: Place, start, capsys) -> None:
    data = place.link.parent / ".data"
    for file in (data / "mine.npz", data / "prepared" / "a.npy", place.folder / "python" / "bin"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    other = made(place.link, "89abcdef-4567-mpi")
    start(place)
    environments.clean(place.link, force=True)
    assert place.python.exists() and not other.environment.exists()
    assert not place.link.is_symlink(), "it led to the other one"
    assert (place.folder / "python").exists(), "the one that stays may have been made with it"
    assert "uses it" in capsys.readouterr().err
    assert (data / "mine.npz").exists() and (data / "prepared" / "a.npy").exists()


def test_clean_sees_what_another_set_up_makes_meanwhile(place: Place, start, monkeypatch) -> None:
    """Seen: the Python that a new environment was made with went away, since none was listed."""
    fetched = place.folder / "python"
    fetched.mkdir()
    wait = environments.only_set_up

    def waits(link: Path):
        start(made(link, "89abcdef-4567"))
        return wait(link)

    monkeypatch.setattr(environments, "only_set_up", waits)
    environments.clean(place.link, force=True)
    assert fetched.exists() and not place.environment.exists()


def test_clean_removes_environments_that_nothing_uses(place: Place, link: Path, capsys) -> None:
    for name in (".removing-01234567-89ab", "mine", "notes.txt"):
        (place.folder / name / "in").mkdir(parents=True)
    (link.parent / ".venvs" / "mine").mkdir(parents=True)
    environments.clean(link, force=True)
    assert sorted(path.name for path in place.folder.iterdir()) == [".lock", "mine", "notes.txt"]
    assert (link.parent / ".venvs" / "mine").exists() and not link.is_symlink()
    mine = environments.folder_of(link.with_name("none")) / "python" / "mine"
    mine.mkdir(parents=True)
    environments.clean(link.with_name("none"), force=True)
    assert mine.exists(), "the name alone makes nothing ours: set-up never locked that folder"
    assert "nothing was removed" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is asked whose a cache is")
@pytest.mark.parametrize(("owner", "mode", "taken"), [(0, 0o755, True), (65534, 0o755, False),
                                                      (0, 0o777, False)])  # fmt: skip
def test_root_takes_no_wheel_from_a_cache_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, taken: bool
) -> None:
    cache = tmp_path / "cache"
    for folder in (cache / "horoscale" / "wheels", cache / "horoscale", cache):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
    os.chown(cache / "horoscale", owner, 0)
    (cache / "horoscale").chmod(mode)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert (locks.cache_folder() == cache / "horoscale") == taken


def test_clean_leaves_all_that_a_job_may_wait_for(place: Place) -> None:
    """Seen: a machine without squeue was taken for one without jobs."""
    with pytest.raises(locks.SetupError, match=rf"{place.environment}: nothing was rem.*FORCE=1"):
        environments.clean(place.link, force=False)
    assert place.python.exists()


def test_room_is_named_before_anything_is_written(tmp_path: Path, monkeypatch, capsys) -> None:
    folder = tmp_path / "none" / "yet"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2e9))
    runner.check_room(folder, 2e9, environments.say)
    assert f"2.0 GB in {folder}; free: 2.0 GB" in capsys.readouterr().err
    with pytest.raises(locks.SetupError, match=r"2\.0 GB are free.*VENV=PATH.*XDG_CACHE_HOME"):
        runner.check_room(folder, 2.1e9, environments.say)


def test_room_for_what_pip_unpacks_is_looked_for_where_it_does(place: Place, monkeypatch) -> None:
    """Seen: on a small /tmp other places for the environment and the caches were advised."""
    small = place.link.parent / "tmp"
    small.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(small))
    free = {small: 1e6}
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=free.get(Path(path), 1e12))
    )
    monkeypatch.setattr(setup_py, "make_venv", lambda _: pytest.fail("writes"))
    place.stamp("login").unlink()
    with pytest.raises(locks.SetupError, match=rf"room for .* in {small}\..*TMPDIR=DIR"):
        setup_py.prepare("login", place)


@pytest.mark.parametrize("said", ["[Errno 122] Disk quota exceeded", "No space left on device"])
def test_an_installers_full_disk_is_named(tmp_path: Path, said: str) -> None:
    command = ["sh", "-c", f"echo 'error: {said}'; exit 2"]
    with pytest.raises(locks.SetupError, match=f"{said.rsplit('] ', maxsplit=1)[-1]}.*VENV=PATH"):
        runner.logged(command, tmp_path / "log", "installing", environments.say)


def make(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    """A target as if the set-up had run."""
    command = ["make", "--no-print-directory", "-C", str(ROOT), "-o", "setup-login", *words]
    command.append(f"VENV={place.link}")
    return ran(command)


@pytest.mark.parametrize(
    ("jobs", "code", "report"),
    [
        ("exit 1", 3, False),  # a traceback
        ("kill -9 $$", 137, False),
        ("echo /results/smoke; exit 1", 1, True),  # a failed cell
        ("echo /results/smoke", 0, True),
    ],
)
@pytest.mark.parametrize("target", ["sweep", "interconnect"])
def test_make_tells_a_crash_from_failed_cells(place, target, jobs, code, report) -> None:
    place.python.write_text(
        f'#!/bin/sh\ncase "$*" in *jobs*) {jobs} ;; *) echo "report $*" ;; esac'
    )
    done = make(place, target)
    assert done.returncode == (2 if code else 0)
    assert not code or f"Error {code}" in done.stderr
    assert ("report -m analysis" in done.stdout) == report
    assert ("broke off" in done.stderr) == (code == 3)


def test_make_goes_by_the_environments_own_name(place) -> None:
    """What was started goes on from there when the link is switched."""
    place.python.write_text('#!/bin/sh\necho "$0"')
    assert make(place, "status").stdout == f"{place.python}\n"
