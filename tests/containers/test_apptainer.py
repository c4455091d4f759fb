"""Finding Apptainer, and what is said where it can neither be found nor installed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def apptainer(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "containers"))
    import apptainer

    return apptainer


def program(folder: Path, name: str) -> Path:
    file = folder / name
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


def test_apptainer_is_found_before_singularity(apptainer, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert apptainer.find() is None
    singularity = program(tmp_path, "singularity")
    assert apptainer.find() == singularity
    found = program(tmp_path, "apptainer")
    assert apptainer.find() == apptainer.ensure() == found


@pytest.mark.parametrize(
    ("codename", "uid", "expected"),
    [("", 0, "not Debian"), ("bookworm", 1000, "only root can install it")],
)
def test_where_it_cannot_be_installed(
    apptainer, tmp_path, monkeypatch, codename, uid, expected
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(apptainer, "debian_codename", lambda: codename)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(apptainer.SetupError, match=expected) as caught:
        apptainer.ensure()
    assert "administrators" in str(caught.value)


def test_a_refusal_is_a_message_and_exit_code_2(apptainer, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(apptainer, "debian_codename", lambda: "")
    assert apptainer.main() == 2
    assert "Traceback" not in (said := capsys.readouterr().err)
    assert said.startswith("[apptainer] Neither apptainer nor singularity is on PATH")


def test_a_failing_command_is_told_with_its_end(apptainer) -> None:
    with pytest.raises(apptainer.SetupError, match=r"trying failed \(exit code 3\):\nbad news"):
        apptainer.run(["sh", "-c", "echo bad news >&2; exit 3"], "trying")
    with pytest.raises(apptainer.SetupError, match=r"trying failed: .*no-such-program"):
        apptainer.run(["no-such-program"], "trying")


def test_apt_never_touches_the_machine_s_own_lists(apptainer) -> None:
    options = " ".join(apptainer.apt_options(Path("/x")))
    for setting in ("Dir::Etc::sourcelist=/x/", "Dir::Etc::sourceparts=-", "Dir::Cache=/x/",
                    "Dir::State::lists=/x/", "Dir::State::status=/x/"):  # fmt: skip
        assert f"-o{setting}" in options


def test_packages_are_used_again_only_when_they_were_seen_to_work(apptainer, tmp_path) -> None:
    deb = tmp_path / "apptainer_1.deb"
    deb.write_bytes(b"")
    assert apptainer.cached_debs(tmp_path) == []  # downloaded, but never seen to start
    (tmp_path / "good").write_text("apptainer_1.deb\nlibc6_2.deb\n")
    assert apptainer.cached_debs(tmp_path) == []  # one of them is gone
    (tmp_path / "good").write_text("apptainer_1.deb\n")
    assert apptainer.cached_debs(tmp_path) == [deb]


def test_programs_use_the_c_library_beside_them(apptainer) -> None:
    interpreter, search = apptainer.patch_commands(Path("/p/bin/x"), Path("/p/lib"))
    assert interpreter == [
        "patchelf",
        "--set-interpreter",
        "/p/lib/ld-linux-x86-64.so.2",
        "/p/bin/x",
    ]
    assert search[-2:] == ["/p/lib", "/p/bin/x"] and "--force-rpath" in search


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes modes of devices")
def test_fuse_is_opened_to_users(apptainer, tmp_path, monkeypatch) -> None:
    device = tmp_path / "fuse"
    device.touch(mode=0o600)
    monkeypatch.setattr(apptainer, "FUSE", device)
    apptainer.open_fuse()
    assert stat.S_IMODE(device.stat().st_mode) == 0o666
