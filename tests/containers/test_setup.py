"""The set-up: what it takes from the locks, when it works, and what it says when it cannot."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import horovod_build
import locks
import pytest
import runner
import setup as setup_py
from environments import Place

from tests.sweeps import ran

LOCKS = ("login", "ranks", "build", "dev")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An environment folder with a Python and nothing else."""
    place = Place(tmp_path / ".venv", "one")
    place.python.parent.mkdir(parents=True)
    place.python.symlink_to(sys.executable)
    return place


def pins(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9_.-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", (*LOCKS, "gpu", "cuda"))
def test_every_pin_has_hashes_and_no_lock_names_an_index(name: str) -> None:
    text = locks.lock_file(name).read_text()
    entries = [entry for entry in re.split(r"\n(?=[a-z0-9])", text) if pins(entry)]
    assert len(entries) == len(pins(text)) > 0
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "http" not in text


def test_locks_never_disagree_and_a_login_node_gets_no_tensorflow() -> None:
    pinned = {name: pins(locks.lock_file(name).read_text()) for name in LOCKS}
    assert all(part.items() <= pinned["dev"].items() for part in pinned.values())
    assert not {"tensorflow-cpu", "horovod", "keras", "tensorflow-addons"} & set(pinned["login"])


def test_horovod_is_cut_out_of_the_lock_and_nothing_else_is() -> None:
    text = locks.lock_file("ranks").read_text()
    horovod = locks.only_horovod()
    assert horovod.startswith("horovod==") and "--hash=sha256:" in horovod
    assert pins(setup_py.packages("ranks")).keys() == pins(text).keys() - {"horovod"}


def test_an_interrupted_environment_is_made_anew(place: Place) -> None:
    """A venv without pip is what an interruption between the two steps of venv leaves."""
    place.python.unlink()
    place.python.symlink_to(str(shutil.which("false")))
    setup_py.make_venv(place)
    assert ran([place.python, "-m", "pip", "--version"]).returncode == 0


def test_what_runs_already_is_added_to_and_never_replaced(place: Place) -> None:
    """A part is added while another one is in use, whose Python is gone."""
    place.python.unlink()
    place.stamp("login").touch()
    used = place.environment / "used.py"
    used.touch()
    setup_py.make_venv(place)
    assert used.exists() and (place.environment / "bin" / "pip").exists()


@pytest.mark.parametrize(
    ("cxx", "message"),
    [("", r"No C\+\+ compiler.*build-essential"), ("g++-77", r"found \(CXX=g\+\+-77\)")],
)
def test_a_missing_compiler_says_what_to_install(monkeypatch, cxx: str, message: str) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", cxx)
    with pytest.raises(locks.SetupError, match=message):
        horovod_build.compiler()


FATAL = "/b/c.h:3:4: fatal error: y"
KILLED = "c++: fatal error: Killed signal terminated program cc1plus"
LINKER = "/usr/bin/ld: cannot find -lstdc++: No such file or directory"
CMAKE = "CMake Error at gloo/CMakeLists.txt:3 (project):"


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (f"a.cc:1:2: note: x\n  {FATAL}\nd.h:5:6: error: z\nmake: Error 2", FATAL),
        (f"{KILLED}\nmake: *** Error 1", KILLED),
        (f"{LINKER}\nmake: *** Error 1", LINKER),
        (f"{CMAKE}\n  No CMAKE_C_COMPILER could be\n  found.\n\n  Tell CMake where.\n\n\n-- x\n",
         f"{CMAKE}\n  No CMAKE_C_COMPILER could be\n  found."),
        ("the reason", None),
    ],
)  # fmt: skip
def test_a_compiler_a_killed_one_a_linker_and_cmake_are_heard(tmp_path, output, error) -> None:
    """And of another program the end of what it said this time."""
    log = tmp_path / "log"
    log.write_text("old.h:1:1: error: of an earlier attempt\n")
    command = ["printf", "%s\n", f"[ 3%] Building\nld: warning: x\n{output}"]
    script = ["sh", "-c", '"$@"; exit 1', "sh", *command]
    with pytest.raises(locks.SetupError) as raised:
        runner.logged(script, log, "building", setup_py.say, hint="Try another.")
    said = str(raised.value)
    if error is None:
        said_last = f"[ 3%] Building\nld: warning: x\n{output}"
        assert (
            said == f"building failed (exit code 1). Try another.\nThe end of {log}:\n{said_last}"
        )
    else:
        assert said.startswith(f"building failed (exit code 1): {error}")
        assert said.endswith(f"\nAll output is in {log}. Try another.")


HEADER = "#pragma once\nstruct Span {\n  const int count;\n  int odd;\n};\n"
PATCH = """Why.
--- a/include/span.h
+++ b/include/span.h
@@ -1,5 +1,4 @@
 #pragma once
 struct Span {
   const int count;
-  int odd;
 };
"""


@pytest.fixture
def header(tmp_path, monkeypatch) -> Path:
    """The file of a source to which the only patch applies."""
    (tmp_path / "span.patch").write_text(PATCH)
    monkeypatch.setattr(horovod_build, "patches", lambda: [tmp_path / "span.patch"])
    header = tmp_path / "source" / "include" / "span.h"
    header.parent.mkdir(parents=True)
    return header


@pytest.mark.parametrize("around", [False, True])
def test_a_patch_is_applied_also_within_a_repository_of_others(header, around: bool) -> None:
    """A home folder, and the cache in it, may be under git."""
    if around:
        subprocess.run(["git", "init", "-q", str(header.parents[2])], check=True)
    header.write_text(HEADER)
    horovod_build.apply_patches(header.parents[1])
    assert header.read_text() == HEADER.replace("  int odd;\n", "")


def test_a_patch_that_does_not_fit_is_refused(header) -> None:
    header.write_text(HEADER.replace("const int", "int"))
    with pytest.raises(
        locks.SetupError, match=r"span.patch.*Horovod's source[\s\S]*include/span\.h"
    ):
        horovod_build.apply_patches(header.parents[1])


def test_the_patches_are_for_the_pinned_horovod_and_give_their_reason() -> None:
    texts = [path.read_text() for path in horovod_build.patches()]
    assert len(texts) == len(list((locks.LOCKS / "recipes").glob("*.patch"))) == 3
    assert all("\n--- a/" in text and not text.startswith("---") for text in texts)


def test_another_compiler_patch_or_python_is_another_wheel(header, monkeypatch) -> None:
    before = horovod_build.wheel_folder(with_mpi=False)
    assert before == horovod_build.wheel_folder(with_mpi=False)
    (header.parents[2] / "span.patch").write_text(PATCH + "\n")
    patched = horovod_build.wheel_folder(with_mpi=False)
    monkeypatch.setenv("CXXFLAGS", "-ffast-math")  # of another recipe: it does not reach the build
    assert before != patched == horovod_build.wheel_folder(with_mpi=False)
    monkeypatch.setattr(horovod_build, "compiler", lambda: shutil.which("cc"))
    other = horovod_build.wheel_folder(with_mpi=False)
    assert other not in (before, patched)
    monkeypatch.setattr(platform, "python_version", lambda: "3.11.99")
    assert horovod_build.wheel_folder(with_mpi=False) == other, "a patch release compiles nothing"
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: "cpython-312-x86_64-linux-gnu")
    assert horovod_build.wheel_folder(with_mpi=False) != other


@pytest.mark.parametrize(("system", "machine"), [("Linux", "aarch64"), ("Darwin", "x86_64")])
def test_only_parts_without_tensorflow_can_be_had_on_another_machine(
    tmp_path, monkeypatch, capsys, system: str, machine: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(setup_py, "prepare", lambda part, place: print(part, file=sys.stderr))
    monkeypatch.setenv("VENV", str(tmp_path / "venv"))
    assert [setup_py.main([part]) for part in ("login", "ranks", "dev")] == [0, 2, 2]
    said = capsys.readouterr().err
    assert said.startswith("login\n") and said.count(f"found {system} on {machine}") == 2


@pytest.mark.parametrize(
    ("words", "version", "says"),
    [
        ([], (3, 11), "usage"),
        (["nonsense"], (3, 11), "usage"),
        (["login"], (3, 12), "expected 3.11"),
    ],
)
def test_wrong_usage_or_another_python_is_exit_code_2(
    monkeypatch, capsys, words: list[str], version: tuple[int, int], says: str
) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 1, "final", 0))
    assert setup_py.main(words) == 2
    assert says in capsys.readouterr().err


def test_the_index_of_pips_files_and_nothing_else_of_them() -> None:
    listing = (
        ":env:.index-url='https://env/'\n"
        "download.index-url='https://b/simple'\n"
        "global.extra-index-url='\\nhttps://c/\\nhttps://d/'\n"
        "global.index-url='https://a/simple'\n"
        "global.require-virtualenv='true'\n"
        "install.user='true'\n"
        "wheel.find-links='/other'\n"
    )
    assert runner.index_settings(listing) == {
        "PIP_INDEX_URL": "https://b/simple", "PIP_EXTRA_INDEX_URL": "https://c/ https://d/",
    }  # fmt: skip
