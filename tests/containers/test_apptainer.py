"""Finding Apptainer, and what is said where it can neither be found nor installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apptainer
import pytest
from locks import SetupError
from runner import run, sha256_of


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
def test_where_it_cannot_be_installed_the_ways_are_named(
    program, monkeypatch, codename, uid, why
) -> None:
    monkeypatch.setattr(apptainer, "debian_codename", lambda: codename)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    message = f"Neither apptainer nor singularity is on PATH.*{why}.*administrators"
    with pytest.raises(SetupError, match=message):
        apptainer.ensure()


def test_the_message_of_a_failing_command_ends_with_its_output() -> None:
    with pytest.raises(SetupError, match=r"trying failed \(exit code 3\):\nbad news"):
        run(["sh", "-c", "echo bad news >&2; exit 3"], "trying")
    with pytest.raises(SetupError, match=r"trying failed: .*no-such-program"):
        run(["no-such-program"], "trying")


def test_what_is_no_utf_8_is_no_traceback() -> None:
    """A compiler, pip and Apptainer speak in the encoding of the user's locale."""
    with pytest.raises(SetupError, match=r"failed \(exit code 1\):\n.*bersetzung"):
        run(["sh", "-c", r"printf '\334bersetzung' >&2; exit 1"])


@pytest.fixture
def machine(tmp_path: Path, program: object, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Debian 12 of root's, on whose PATH there is no Apptainer."""
    places = {"CONFIGURATION": "etc/apptainer", "STARTER": "usr/lib/apptainer",
              "PROGRAM": "usr/bin/apptainer", "WRITTEN": "local/apptainer.written",
              "PREFIX": "local/apptainer"}  # fmt: skip
    for name, place in places.items():
        monkeypatch.setattr(apptainer, name, tmp_path / place)
    (tmp_path / "local").mkdir()
    monkeypatch.setattr(apptainer, "debian_codename", lambda: "bookworm")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


class Installs(Exception):
    """In place of an installation."""


def installs(*_: object) -> None:
    raise Installs


@pytest.mark.parametrize(
    "place", ["etc/apptainer/apptainer.conf", "usr/lib/apptainer/bin/starter", "usr/bin/apptainer"]
)
@pytest.mark.parametrize("kind", ["file", "link"])
def test_another_installation_s_files_are_never_overwritten(
    machine: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
) -> None:
    """Seen: /etc/apptainer of a site whose program lies in /opt, where PATH did not lead."""
    monkeypatch.setattr(apptainer, "install_packages", installs)
    monkeypatch.setattr(apptainer, "install_privately", installs)
    with pytest.raises(Installs):
        apptainer.ensure()
    file = machine / place
    file.parent.mkdir(parents=True)
    if kind == "link":
        file.symlink_to("/nowhere")
    else:
        file.write_text("theirs")
    with pytest.raises(SetupError, match=rf"found {file} .*did not write.*PATH.*move away") as said:
        apptainer.ensure()
    assert "nothing was installed" in str(said.value)


def test_an_interrupted_installation_is_gone_on_with_and_a_change_is_kept(machine: Path) -> None:
    source, target = machine / "source", machine / "etc" / "apptainer" / "deep" / "apptainer.conf"
    source.write_text("ours")
    apptainer.put(source, target)
    (target.parent / ".horoscale-starter").write_text("half of it")
    apptainer.check_places()
    source.write_text("of a later version")
    apptainer.put(source, target)
    apptainer.check_places()
    assert target.read_text() == "of a later version"
    target.write_text("changed by the site")
    with pytest.raises(SetupError, match="somebody changed"):
        apptainer.check_places()


def test_only_signed_lists_are_taken_and_the_locked_versions_first(
    tmp_path: Path, program: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever apt's settings of this machine are: the command line has the last word."""
    for tool in ("cat", "touch"):
        program(tool, f'exec {shutil.which(tool, path="/usr/bin:/bin")} "$@"')
    program("apt-get", f'echo "$*" >>{tmp_path}/calls; case $* in *=[1-9]*-*) exit 100; esac')
    monkeypatch.setenv("DEBIAN_MIRROR", "http://absent/debian")
    assert apptainer.fetch_debs(tmp_path / "packages") == []
    calls = (tmp_path / "calls").read_text().splitlines()
    for call in calls:
        assert "-o APT::Get::AllowUnauthenticated=false" in call
        assert "-o Acquire::AllowInsecureRepositories=false" in call
    locked = apptainer.pinned()
    assert calls[1].endswith(" ".join(f"{name}={version}" for name, (version, _) in locked.items()))
    assert calls[2].endswith(f"download {' '.join(locked)}"), "the mirror has other versions"


@pytest.fixture
def deb(tmp_path: Path) -> Path:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb not found")
    control = tmp_path / "tree" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(
        "Package: libc6\nVersion: 2-1\nArchitecture: all\nMaintainer: a\nDescription: a\n"
    )
    run(["dpkg-deb", "--build", str(control.parents[1]), str(tmp_path / "libc6.deb")])
    return tmp_path / "libc6.deb"


def test_a_package_of_a_locked_version_is_that_very_file(
    deb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "apptainer.lock"
    monkeypatch.setattr(apptainer, "LOCK", lock)
    good = f"libc6 2-1 {sha256_of(deb)}\n"
    lock.write_text(good)
    assert apptainer.check_debs([deb]) == good and capsys.readouterr().err == ""
    lock.write_text("# a comment\nlibc6 1-9 00\n")
    assert apptainer.check_debs([deb]) == good
    assert "libc6 2-1 (not 1-9). To pin them: cp " in capsys.readouterr().err
    lock.write_text("libc6 2-1 00\n")
    with pytest.raises(SetupError, match=r"libc6 2-1 from the mirror has sha256 .*expected 00"):
        apptainer.check_debs([deb])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's files are of root")
@pytest.mark.parametrize(("mode", "after"), [(0o600, 0o666), (0o660, 0o660), (0o640, 0o640)])
def test_a_device_s_mode_that_the_site_chose_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, after: int
) -> None:
    fuse = tmp_path / "fuse"
    fuse.touch()
    fuse.chmod(mode)
    monkeypatch.setattr(apptainer, "FUSE", fuse)
    apptainer.open_fuse()
    assert fuse.stat().st_mode & 0o777 == after
