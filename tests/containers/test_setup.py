"""The set-up: what it takes from the locks, when it works, and what it says when it cannot."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("login", "ranks", "build", "dev")


@pytest.fixture
def setup_py(tmp_path, monkeypatch):
    """containers/setup.py as a module, with an empty environment folder of its own."""
    monkeypatch.syspath_prepend(str(ROOT / "containers"))
    spec = importlib.util.spec_from_file_location("setup_py", ROOT / "containers" / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    return module


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "containers" / f"{name}.lock").read_text()
    return dict(re.findall(r"^([a-z0-9_.-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_hashes_and_no_lock_names_an_index(name: str) -> None:
    text = (ROOT / "containers" / f"{name}.lock").read_text()
    entries = re.split(r"\n(?=[a-z0-9])", text)
    pinned = [entry for entry in entries if re.match(r"[a-z0-9_.-]+==", entry)]
    assert len(pinned) == len(pins(name)) > 0
    assert all("--hash=sha256:" in entry for entry in pinned)
    assert "http" not in text


@pytest.mark.parametrize("name", LOCKS)
def test_locks_never_disagree(name: str) -> None:
    every = pins("dev")
    assert {k: v for k, v in pins(name).items() if every.get(k) != v} == {}


def test_a_login_node_gets_no_tensorflow() -> None:
    assert not {"tensorflow-cpu", "horovod", "keras", "tensorflow-addons"} & set(pins("login"))


def test_horovod_is_cut_out_of_the_lock_and_nothing_else_is(setup_py) -> None:
    text = (ROOT / "containers" / "ranks.lock").read_text()
    rest, horovod = setup_py.without_horovod(text), setup_py.only_horovod(text)
    assert horovod.startswith("horovod==") and "--hash=sha256:" in horovod
    names = set(re.findall(r"^([a-z0-9_.-]+)==", rest, re.MULTILINE))
    assert names == set(pins("ranks")) - {"horovod"}


def test_a_part_is_current_only_while_its_lock_is_the_same(setup_py, tmp_path, monkeypatch) -> None:
    locks = tmp_path / "locks"
    locks.mkdir()
    for name in LOCKS:
        (locks / f"{name}.lock").write_text((ROOT / "containers" / f"{name}.lock").read_text())
    monkeypatch.setattr("locks.LOCKS", locks)
    python = with_python(setup_py.VENV)
    assert not setup_py.is_current("ranks", with_mpi=False)
    setup_py.stamp("ranks").write_text(setup_py.fingerprint("ranks", with_mpi=False))
    assert setup_py.is_current("ranks", with_mpi=False)
    assert not setup_py.is_current("ranks", with_mpi=True), "another build of Horovod"
    python.unlink()
    assert not setup_py.is_current("ranks", with_mpi=False), "the checkout was moved"
    with_python(setup_py.VENV)
    (locks / "ranks.lock").write_text("changed==1\n")
    assert not setup_py.is_current("ranks", with_mpi=False)


def with_python(venv: Path) -> Path:
    python = venv / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.symlink_to(sys.executable)
    return python


def test_the_choice_of_mpi_stays_until_told_otherwise(setup_py) -> None:
    with_python(setup_py.VENV)
    assert not setup_py.wants_mpi(None) and setup_py.wants_mpi("1")
    setup_py.stamp("ranks").write_text(setup_py.fingerprint("ranks", with_mpi=True))
    assert setup_py.wants_mpi(None) and not setup_py.wants_mpi("0")


def test_an_interrupted_environment_is_made_anew(setup_py) -> None:
    """A venv without pip is what an interruption between the two steps of venv leaves."""
    python = with_python(setup_py.VENV)
    setup_py.make_venv()
    probe = [str(python), "-m", "pip", "--version"]
    assert subprocess.run(probe, capture_output=True, check=False).returncode == 0


def test_a_missing_compiler_says_what_to_install(setup_py, monkeypatch) -> None:
    from horovod_build import compiler

    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(setup_py.SetupError, match=r"No C\+\+ compiler.*build-essential"):
        compiler()
    monkeypatch.setenv("CXX", "g++-77")
    with pytest.raises(setup_py.SetupError, match=r"CXX=g\+\+-77 found"):
        compiler()


def test_a_failing_command_shows_the_end_of_its_log(setup_py, tmp_path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"]
    with pytest.raises(setup_py.SetupError, match=r"exit code 3(.|\n)*the reason"):
        setup_py.run_logged(command, log, "a step", None)


def test_a_failing_compiler_shows_its_first_error_not_what_follows(setup_py, tmp_path) -> None:
    said = "a.cc:1:2: note: x\\n  /b/c.h:3:4: fatal error: y\\nd.h:5:6: error: z\\nmake: Error 2"
    command = [sys.executable, "-c", f"print('{said}'); raise SystemExit(1)"]
    (tmp_path / "log").write_text("old.h:1:1: error: of an earlier attempt\n")
    with pytest.raises(setup_py.SetupError) as raised:
        setup_py.run_logged(command, tmp_path / "log", "building", None, "Try another.")
    assert str(raised.value) == (
        "building failed (exit code 1): /b/c.h:3:4: fatal error: y\n"
        f"All output is in {tmp_path / 'log'}. Try another."
    )


@pytest.mark.parametrize(
    "said",
    ["c++: fatal error: Killed signal terminated program cc1plus",
     "/usr/bin/ld: cannot find -lstdc++: No such file or directory"],
)  # fmt: skip
def test_a_compiler_that_is_killed_and_a_linker_are_heard_too(setup_py, said: str) -> None:
    from horovod_build import first_error

    assert first_error(f"[ 3%] Building\nld: warning: x\n{said}\nmake: *** Error 1\n") == said


def test_a_failing_cmake_shows_its_reason(setup_py) -> None:
    from horovod_build import first_error

    said = (
        "-- looking\nCMake Error at gloo/CMakeLists.txt:3 (project):\n  No CMAKE_C_COMPILER could "
        "be\n  found.\n\n  Tell CMake where.\n\n\n-- incomplete\n"
    )
    assert first_error(said) == (
        "CMake Error at gloo/CMakeLists.txt:3 (project): No CMAKE_C_COMPILER could be found."
    )


def test_the_c_compiler_is_that_of_the_c_plus_plus_one(setup_py, tmp_path) -> None:
    from horovod_build import c_compiler

    for name in ("gcc-13", "cc", "clang-19", "x86_64-linux-gnu-gcc"):
        (tmp_path / name).touch()
    pairs = {"g++-13": "gcc-13", "c++": "cc", "clang++-19": "clang-19",
             "x86_64-linux-gnu-g++": "x86_64-linux-gnu-gcc"}  # fmt: skip
    for cxx, own in pairs.items():
        assert c_compiler(str(tmp_path / cxx)) == str(tmp_path / own)
    assert c_compiler(str(tmp_path / "g++-14")) is None
    assert c_compiler(str(tmp_path / "icpx")) is None


HEADER = "#pragma once\nstruct Span {\n  const int count;\n  int broken(;\n};\n"
PATCH = """Why.
--- a/include/span.h
+++ b/include/span.h
@@ -1,5 +1,4 @@
 struct Span {
   const int count;
-  int broken(;
 };
"""


@pytest.fixture
def one_patch(setup_py, tmp_path, monkeypatch) -> Path:
    (tmp_path / "span.patch").write_text(PATCH)
    monkeypatch.setattr("horovod_build.patches", lambda: [tmp_path / "span.patch"])
    header = tmp_path / "source" / "include" / "span.h"
    header.parent.mkdir(parents=True)
    return header


def test_a_patch_is_applied_where_the_compiler_refuses_the_file(one_patch) -> None:
    from horovod_build import apply_patches

    one_patch.write_text(HEADER)
    assert apply_patches(one_patch.parents[1]) == ["span"]
    assert one_patch.read_text() == HEADER.replace("  int broken(;\n", "")


def test_a_source_that_compiles_stays_as_published(one_patch) -> None:
    from horovod_build import apply_patches

    published = HEADER.replace("broken(", "fine")
    one_patch.write_text(published)
    assert apply_patches(one_patch.parents[1]) == []
    assert one_patch.read_text() == published


def test_the_patch_for_all_is_applied_to_a_source_that_compiles(one_patch, monkeypatch) -> None:
    from horovod_build import apply_patches

    one_patch.write_text(HEADER)
    monkeypatch.setattr("horovod_build.refuses", lambda *_: False)
    monkeypatch.setattr("horovod_build.ALWAYS", ("span",))
    assert apply_patches(one_patch.parents[1]) == ["span"]


def test_a_patch_that_does_not_fit_is_refused(setup_py, one_patch) -> None:
    from horovod_build import apply_patches

    one_patch.write_text(HEADER.replace("const int", "int"))
    with pytest.raises(setup_py.SetupError, match=r"does not fit include/span\.h"):
        apply_patches(one_patch.parents[1])


def test_the_patches_are_for_the_pinned_horovod_and_give_their_reason(setup_py) -> None:
    from horovod_build import patches, touched

    texts = [path.read_text() for path in patches()]
    assert len(texts) == len(list((ROOT / "containers" / "patches").iterdir())) == 3
    assert all(touched(text) and not text.startswith("---") for text in texts)


def test_another_compiler_or_patch_is_another_wheel(setup_py, one_patch, monkeypatch) -> None:
    from horovod_build import wheel_folder

    before = wheel_folder(with_mpi=False)
    assert before == wheel_folder(with_mpi=False)
    (one_patch.parents[2] / "span.patch").write_text(PATCH + "\n")
    patched = wheel_folder(with_mpi=False)
    monkeypatch.setenv("CXXFLAGS", "-std=c++14")
    assert len({before, patched, wheel_folder(with_mpi=False)}) == 3


def test_only_parts_without_tensorflow_can_be_had_on_another_machine(setup_py) -> None:
    assert setup_py.unsupported("ranks", "Linux", "x86_64") is None
    assert setup_py.unsupported("login", "Linux", "aarch64") is None
    for system, machine in (("Linux", "aarch64"), ("Darwin", "x86_64")):
        assert f"found {system} on {machine}" in setup_py.unsupported("dev", system, machine)


@pytest.mark.parametrize("words", [[], ["nonsense"], ["login", "ranks"]])
def test_wrong_usage_is_exit_code_2(setup_py, words, capsys) -> None:
    assert setup_py.main(words) == 2
    assert "usage" in capsys.readouterr().err


def test_another_python_is_refused_with_what_to_do(setup_py, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12, 1, "final", 0))
    assert setup_py.main(["login"]) == 2
    assert "expected 3.11" in capsys.readouterr().err
