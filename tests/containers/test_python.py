"""Which Python 3.11 the commands run on: named, found or fetched; what is said if none is."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sweeps import ROOT, executable, ran

TOOLS = ("sh", "id", "dirname", "uname", "readlink", "mkdir", "mktemp", "rm", "chmod", "echo",
         "cat", "cp", "mv")  # fmt: skip
BASE = Path(sys.executable).resolve()
#: What its pip, too, does as this machine's, but for the version that it says it is.
OTHER = f"""
case "$*" in
--version) echo Python 3.12.9 ;;
*'!= (3, 11)'*) exit 1 ;;
*) exec {sys.executable} "$@" ;;
esac
"""
OLD = "case $* in --version) echo Python 3.6.8 ;; '-m pip --version') ;; *) exit 1 ;; esac"
BARE = "case $* in --version) echo Python 3.13.5 ;; *) exit 1 ;; esac"
#: As Debian's python3 without python3-venv: it can make no environment.
SPLIT = f'case $* in *ensurepip*|-m*) exit 1 ;; *) exec {BASE} "$@" ;; esac'


@pytest.fixture
def tmp_path(open_folder: Path) -> Path:
    """Whether others can enter what is around a Python decides here."""
    return open_folder


@pytest.fixture
def checkout(tmp_path) -> Path:
    folder = tmp_path / "checkout"
    for part in ("containers/locks", ".venv/bin"):
        (folder / part).mkdir(parents=True)
    for name in ("python.sh", "locks/uv.pin"):
        shutil.copy(ROOT / "containers" / name, folder / "containers" / name)
    return folder


@pytest.fixture
def run(checkout, program, tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Ask the checkout's Python for its version; on PATH are TOOLS and what a test puts there."""
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool, path=os.defpath)))

    def start(**variables: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(checkout / "containers" / "python.sh"),
                   "-c", "import sys; print(sys.version_info[:2])"]  # fmt: skip
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHON"}
        env = inherited | {"XDG_CACHE_HOME": str(tmp_path / "cache")} | variables
        return ran(command, env=env)

    return start


@pytest.mark.parametrize("place", ["bin/python3.11", "bin/python3", "checkout/.venv/bin/python"])
def test_a_python_on_path_or_that_made_the_environment_is_used(run, tmp_path, place) -> None:
    (tmp_path / place).symlink_to(BASE)
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "(3, 11)\n", "")


def fetched(folder: Path, says: str) -> Path:
    """A Python that was fetched into this checkout, and says so."""
    python = folder / ".venv.envs" / "python" / "cpython-3.11" / "bin" / "python3.11"
    return executable(python, f'#!/bin/sh\necho "{says}" >&2\nexec {BASE} "$@"\n')


def test_a_fetched_python_stays_in_use_behind_a_link(run, checkout, tmp_path) -> None:
    """A home that leads to another disk. Seen: a module's Python took its place."""
    disk = tmp_path / "disk"
    checkout.rename(disk)
    checkout.symlink_to(disk)
    (checkout / ".venv/bin/python").symlink_to(fetched(checkout, "own").resolve())
    (tmp_path / "bin" / "python3.11").symlink_to(BASE)
    assert "own" in run().stderr


@pytest.mark.parametrize("gone", [False, True])
def test_a_copy_uses_its_own_fetched_python(run, checkout, tmp_path, gone: bool) -> None:
    """Else it breaks with the checkout that it is a copy of."""
    (checkout / ".venv/bin/python").symlink_to(fetched(tmp_path / "first", "the first's"))
    fetched(checkout, "own")
    if gone:
        shutil.rmtree(tmp_path / "first")
    done = run()
    assert done.stdout == "(3, 11)\n" and "own" in done.stderr
    assert "first" not in done.stderr


def test_a_python_named_wrongly_is_not_replaced(run, program, tmp_path) -> None:
    program("python3", OLD)
    (tmp_path / "bin" / "python3.11").symlink_to(BASE)
    done = run(PYTHON="python3")
    assert done.returncode == 2
    assert "PYTHON=python3: found Python 3.6.8, expected Python 3.11" in done.stderr


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A Python in a folder that only root can enter."""
    if os.geteuid() != 0:
        pytest.skip("only root has folders that others cannot enter, and the way to them")
    folder = tmp_path / "root"
    folder.mkdir()
    shutil.copy(BASE, folder / "python3.11")
    folder.chmod(0o700)
    return folder / "python3.11"


@pytest.mark.parametrize("case", ["closed", "link", "file mode", "closed checkout", "open"])
def test_root_takes_no_python_that_others_could_not_start(run, closed, checkout, case) -> None:
    """umask 077 makes a checkout for its owner alone; a link does not open what it leads to."""
    python = closed
    if case == "link":
        python = checkout / "python3.11"
        python.symlink_to(closed)
    elif case == "file mode":
        closed.chmod(0o700)
    elif case == "closed checkout":
        checkout.chmod(0o700)
    if case in ("file mode", "open"):
        closed.parent.chmod(0o755)
    path = f"{python.parent}:{os.environ['PATH']}"
    done, named = run(PATH=path), run(PATH=path, PYTHON=str(python))
    passed_over = case not in ("closed checkout", "open")
    assert done.returncode == (2 if passed_over else 0), done.stderr
    assert (f"PYTHON={python}, which is in a closed folder" in done.stderr) == passed_over
    assert named.returncode == 0
    assert (f"only root can start what is made with {python}" in named.stderr) == passed_over


@pytest.mark.parametrize(
    ("python3", "reason"),
    [
        ("", "found no Python at all"),
        (OLD, "Python 3.6.8's pip cannot fetch uv=="),
        (BARE, "Python 3.13.5 with neither pip nor a complete venv"),
        (SPLIT, "no complete Python 3.11: fetching"),
    ],
)
def test_where_none_can_be_fetched_the_ways_are_named(run, program, python3, reason) -> None:
    if python3:
        program("python3", python3)
    done = run()
    assert done.returncode == 2 and reason in done.stderr
    assert "install python3-venv" in done.stderr or python3 not in (BARE, SPLIT)
    assert all(way in done.stderr for way in ("module load", "conda", "pyenv", "uv", "PYTHON="))
    assert "Traceback" not in done.stderr


def test_where_nothing_can_be_written_another_place_is_named(run, program) -> None:
    """A checkout on a read-only disk. Seen: mkdir's words alone."""
    program("python3", OLD)
    done = run(VENV="/proc/none/.venv")
    assert done.returncode == 2 and "VENV=PATH" in done.stderr and "PYTHON=" in done.stderr


def test_another_processor_is_told_in_one_sentence(run, program) -> None:
    program("uname", "[ $1 = -s ] && echo Linux || echo aarch64")
    program("python3", OLD)
    done = run()
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "found Linux on aarch64" in done.stderr


def mirror(folder: Path) -> Path:
    """A Python as uv downloads it, and the list in which uv finds it with its hash."""
    program = executable(folder / "python3.11", f'#!/bin/sh\nexec {BASE} "$@"\n')
    built = folder / "built.py"
    built.write_text(
        "# system configuration generated and used by the sysconfig module\nbuild_time_vars = {}\n"
    )
    archive = folder / "python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(program, "python/bin/python3.11")
        tar.add(built, "python/lib/python3.11/_sysconfigdata__linux_x86_64-linux-gnu.py")
    listing = folder / "downloads.json"
    listing.write_text(json.dumps({"cpython-3.11.18-linux-x86_64-gnu": {
        "name": "cpython", "arch": {"family": "x86_64", "variant": None}, "os": "linux",
        "libc": "gnu", "major": 3, "minor": 11, "patch": 18, "prerelease": "", "variant": None,
        "build": "20250918", "url": archive.as_uri(),
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }}))  # fmt: skip
    return listing


@pytest.mark.slow  # needs the package index
def test_it_is_fetched_once_and_only_with_its_hash(run, program, checkout, tmp_path) -> None:
    """With the real uv from the package index; of Python a mirror in a folder."""
    program("python3", OTHER)
    nowhere = run(UV_PYTHON_INSTALL_MIRROR=(tmp_path / "none").as_uri())
    assert nowhere.returncode == 2 and "uv cannot fetch Python 3.11" in nowhere.stderr
    listing = mirror(tmp_path)
    first = run(UV_PYTHON_DOWNLOADS_JSON_URL=str(listing))
    assert (first.returncode, first.stdout) == (0, "(3, 11)\n"), first.stderr
    assert first.stderr.startswith(
        "[setup] found Python 3.12.9, no complete Python 3.11: fetching one"
    )
    again = run(PIP_NO_INDEX="1")
    assert (again.stdout, again.stderr) == ("(3, 11)\n", "")
    shutil.rmtree(checkout / ".venv.envs")
    listing.write_text(re.sub('"sha256": "..', '"sha256": "00', listing.read_text()))
    altered = run(UV_PYTHON_DOWNLOADS_JSON_URL=str(listing))
    assert altered.returncode == 2 and "Hash mismatch" in altered.stderr


def test_what_the_shell_says_to_python_and_bash_is_not_heard(tmp_path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("pydantic", "pandas", "typer"):
        (hostile / f"{name}.py").write_text("raise ImportError('the hostile one')\n")
    (hostile / "shell").write_text("echo hostile >&2; exit 7\n")
    env = {
        **os.environ,
        "PYTHONPATH": str(hostile),
        "PYTHONHOME": str(hostile),
        "PYTHONWARNINGS": "error",
        "PYTHONINSPECT": "1",
        "BASH_ENV": str(hostile / "shell"),
        "BASH_FUNC_echo%%": "() { exit 7; }",
        "SHELLOPTS": "noexec",
        "CDPATH": str(hostile),
    }
    for target, code in (("plan", 0), ("report", 2)):  # no records yet: make knows 0 and 2
        command = ["make", "-C", str(ROOT), target, "SWEEP=smoke", "SITE=local",
                   f"RESULTS={tmp_path / 'results'}"]  # fmt: skip
        done = ran(command, env=env)
        assert done.returncode == code, done.stderr
        assert "hostile" not in done.stderr and "Traceback" not in done.stderr
