"""Finding Apptainer, and what is said where it can neither be found nor installed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apptainer
import pytest


def test_apptainer_is_found_before_singularity(program) -> None:
    assert apptainer.find() is None
    singularity = program("singularity")
    assert apptainer.find() == singularity
    both = program("apptainer")
    assert apptainer.find() == apptainer.ensure() == both


@pytest.mark.parametrize(
    ("codename", "uid", "why"),
    [("", 0, "not Debian"), ("bookworm", 1000, "only root can install it")],
)
def test_where_it_cannot_be_installed_a_message_and_exit_code_2(
    program, monkeypatch, capsys, codename, uid, why
) -> None:
    monkeypatch.setattr(apptainer, "debian_codename", lambda: codename)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert apptainer.main() == 2
    message = capsys.readouterr().err
    assert message.startswith("[apptainer] Neither apptainer nor singularity is on PATH")
    assert why in message and "administrators" in message


def test_the_message_of_a_failing_command_ends_with_its_output() -> None:
    with pytest.raises(apptainer.SetupError, match=r"trying failed \(exit code 3\):\nbad news"):
        apptainer.run(["sh", "-c", "echo bad news >&2; exit 3"], "trying")
    with pytest.raises(apptainer.SetupError, match=r"trying failed: .*no-such-program"):
        apptainer.run(["no-such-program"], "trying")


def test_packages_are_used_again_only_when_they_were_seen_to_work(tmp_path) -> None:
    deb = tmp_path / "apptainer_1.deb"
    deb.write_bytes(b"")
    assert apptainer.cached_debs(tmp_path) == []  # downloaded, but never seen to start
    (tmp_path / "good").write_text("apptainer_1.deb\nlibc6_2.deb\n")
    assert apptainer.cached_debs(tmp_path) == []  # one of them is gone
    (tmp_path / "good").write_text("apptainer_1.deb\n")
    assert apptainer.cached_debs(tmp_path) == [deb]


def test_apt_leaves_the_machine_s_lists_alone_and_programs_use_the_c_library_beside_them() -> None:
    settings = {"Dir::Etc::sourcelist=/x/sources.list", "Dir::Etc::sourceparts=-",
                "Dir::Cache=/x/cache", "Dir::State::lists=/x/lists",
                "Dir::State::status=/x/status"}  # fmt: skip
    assert {f"-o{setting}" for setting in settings} <= set(apptainer.apt_options(Path("/x")))
    assert apptainer.patch_commands(Path("/p/bin/x"), Path("/p/lib")) == [
        ["patchelf", "--set-interpreter", "/p/lib/ld-linux-x86-64.so.2", "/p/bin/x"],
        ["patchelf", "--force-rpath", "--set-rpath", "/p/lib", "/p/bin/x"],
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes modes of devices")
def test_fuse_is_opened_to_users(tmp_path, monkeypatch) -> None:
    device = tmp_path / "fuse"
    device.touch(mode=0o600)
    monkeypatch.setattr(apptainer, "FUSE", device)
    apptainer.open_fuse()
    assert stat.S_IMODE(device.stat().st_mode) == 0o666
