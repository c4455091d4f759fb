"""Set-up with the real pip and builds with the real setuptools, whatever the user's shell and dot
files say to them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import horovod_build
import pytest
import setup as setup_py

from tests.sweeps import copy_checkout, ran
from train.distributed.machine.quota import Quota

#: A package index that only pip's own file knows.
CONF = "[global]\nno-index = true\nfind-links = {wheels}\n"
HOSTILE = (
    "user = true\nrequire-virtualenv = true\ntarget = {home}/t\nquiet = 3\nlog = /not/there/log\n"
    "[install]\nprefix = {home}/p\n"
)


def wheel(folder: Path, module: str = "") -> str:
    """A package with all modules that are imported before login counts as installed; its hash."""
    names = [f"{name.replace('.', '/')}.py" for name in setup_py.IMPORTED["login"]]
    meta = {
        "METADATA": "Metadata-Version: 2.1\nName: horoscale-tiny\nVersion: 1\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files = dict.fromkeys(names, module) | {
        f"horoscale_tiny-1.dist-info/{k}": v for k, v in meta.items()
    }
    record = "".join(f"{name},,\n" for name in (*files, "horoscale_tiny-1.dist-info/RECORD"))
    file = folder / "horoscale_tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in (files | {"horoscale_tiny-1.dist-info/RECORD": record}).items():
            archive.writestr(zipfile.ZipInfo(name), text)  # without a time: its hash stays
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of set-up with a lock of one package, and a home that knows its index."""
    folder = copy_checkout(tmp_path_factory.mktemp("checkout"))
    for part in ("wheels", "home/.config/pip"):
        (folder / part).mkdir(parents=True)
    return folder


def set_up(
    checkout: Path, *, module: str = "", conf: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """`setup.py login` once more, in the environment that an earlier one made."""
    digest = wheel(checkout / "wheels", module)
    lock = checkout / "containers" / "locks" / "login.lock"
    lock.write_text(f"horoscale-tiny==1 \\\n    --hash=sha256:{digest}\n")
    for old in checkout.glob(".venv.envs/*/.installed-login"):
        old.rename(old.with_name(".installed-before"))  # what is there already is added to
    shutil.rmtree(checkout / "home" / "t", ignore_errors=True)
    python = checkout / ".venv" / "bin" / "python"
    if python.exists():
        ran([python, "-m", "pip", "uninstall", "-qy", "horoscale-tiny"])
    home = checkout / "home"
    text = (CONF + conf).format(wheels=checkout / "wheels", home=home)
    (home / ".config" / "pip" / "pip.conf").write_text(text)
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "XDG_"))}
    command = [sys.executable, str(checkout / "containers" / "setup.py"), "login"]
    return ran(command, env=own | {"HOME": str(home)} | variables)


@pytest.mark.parametrize(
    ("conf", "variables"),
    [
        ("", {"PIP_USER": "1", "LC_ALL": "C"}),
        ("", {"PIP_TARGET": "{home}/t", "PIP_REQUIRE_VIRTUALENV": "1"}),
        ("", {"PIP_PREFIX": "{home}/t", "PIP_CONSTRAINT": "/not/there"}),
        ("", {"PIP_ROOT": "{home}/t", "PYTHONWARNINGS": "error"}),
        ("", {"PIP_DRY_RUN": "1", "PIP_NO_BINARY": ":all:", "PIP_ISOLATED": "1"}),
        (HOSTILE, {"TMPDIR": "/not/there"}),
        ("", {"PIP_CONFIG_FILE": "{home}/hostile.conf"}),
    ],
)  # fmt: skip
def test_pip_installs_into_the_environment(
    checkout: Path, conf: str, variables: dict[str, str]
) -> None:
    home = checkout / "home"
    named = (CONF + HOSTILE).format(wheels=checkout / "wheels", home=home)
    (home / "hostile.conf").write_text(named)
    given = {name: value.format(home=home) for name, value in variables.items()}
    done = set_up(checkout, conf=conf, **given)
    assert done.returncode == 0, done.stderr
    found = list((checkout / ".venv").glob("lib/*/site-packages/pydantic.py"))
    assert found and "ready after" in done.stderr and not (home / "t").exists()


def test_a_copied_and_a_moved_checkout_make_their_own(checkout: Path, tmp_path: Path) -> None:
    """Seen: the programs there (pip, pytest, ...) named the first checkout's, and ran from it."""
    assert set_up(checkout).returncode == 0
    copied, moved = tmp_path / "copied", tmp_path / "moved"
    shutil.copytree(checkout, copied, symlinks=True)
    for there in (copied, moved):
        if there == moved:
            copied.rename(moved)
        before = (there / ".venv").resolve()
        done = set_up(there)
        assert done.returncode == 0 and "making a Python" in done.stderr, done.stderr
        made = (there / ".venv").resolve()
        assert made.name != before.name and made.is_relative_to(there)
        assert (made / "bin" / "pip").read_text().startswith(f"#!{made}/bin/python")


def test_what_cannot_be_imported_is_not_ready(checkout: Path) -> None:
    done = set_up(checkout, module="raise ImportError('libz.so.1: wrong ELF class')")
    assert done.returncode == 2 and "wrong ELF class" in done.stderr
    assert "ready" not in done.stderr and not list(checkout.glob(".venv.envs/*/.installed-login"))
    assert set_up(checkout).returncode == 0, "the next one is good again"


def test_a_file_of_pip_that_it_cannot_read_is_named(checkout: Path) -> None:
    done = set_up(checkout, conf="no section = [\n[")
    assert done.returncode == 2 and "pip.conf" in done.stderr and "Traceback" not in done.stderr


BUILD = """
import os, sys
from setuptools import Extension, setup
stray = [n for n in os.environ if n.startswith("HOROVOD_") and n not in sys.argv[1].split(",")]
sys.argv[1:] = ["build_ext", "--build-temp", "made", "--build-lib", "made"]
assert not stray, stray
setup(name="tiny", ext_modules=[Extension("tiny", ["tiny.cc"])])
"""


@pytest.mark.parametrize(
    "variables",
    [
        {"HOROVOD_GPU_OPERATIONS": "NCCL", "CFLAGS": "-no-such-flag", "CC": "/no/icc"},
        {"HOROVOD_WITHOUT_GLOO": "1", "LDFLAGS": "-lnowhere", "CXXFLAGS": "--bad", "LC_ALL": "C"},
        {"HOROVOD_WITH_PYTORCH": "1", "CPPFLAGS": "--bad", "LDSHARED": "false", "MAKEFLAGS": "-n"},
    ],
)
def test_a_build_follows_no_other_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    pytest.importorskip("setuptools")
    (tmp_path / ".pydistutils.cfg").write_text("[build_ext]\nlibraries = nowhere\n")
    (tmp_path / "setup.py").write_text(BUILD)
    (tmp_path / "tiny.cc").write_text("int tiny() { return 1; }\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    own = horovod_build.build_environment(tmp_path / "venv", with_mpi=False)
    ours = "HOROVOD_CMAKE,HOROVOD_WITH_TENSORFLOW,HOROVOD_WITH_GLOO,HOROVOD_WITHOUT_MPI"
    ours += ",HOROVOD_WITHOUT_PYTORCH,HOROVOD_WITHOUT_MXNET"
    done = ran([sys.executable, "setup.py", ours], cwd=tmp_path, env=own)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("made/tiny*.so"))


def test_a_build_has_as_many_compilers_as_a_cpu_quota_allows(monkeypatch, tmp_path: Path) -> None:
    """A container with two of 64 cores has memory for two."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    monkeypatch.setattr(horovod_build.quota, "quotas_here", lambda: (Quota("mine", 2.5),))
    monkeypatch.setattr(horovod_build, "compiler", lambda: "c++")
    env = horovod_build.build_environment(tmp_path, with_mpi=False)
    assert env["MAKEFLAGS"] == "-j2"
