"""Building images: ways to packages, refusals before anything is done, and nothing half-made under
a good name."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import image
import image_downloads
import image_mirrors
import image_prepare
import image_steps
import pytest
from locks import SetupError


@pytest.mark.parametrize("arguments", ([], ["cpu", "gpu"], ["rocm"]))
def test_a_wrong_name_is_refused(capsys, arguments) -> None:
    assert image.main(arguments) == 2
    assert "expected one of: cpu, gpu" in capsys.readouterr().err


def test_a_checkout_of_somebody_else_is_refused_at_once(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(image, "FOLDER", tmp_path / "images")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert image.main(["cpu"]) == 2
    assert "cannot be written, expected a folder for the image" in capsys.readouterr().err


def test_an_image_is_current_while_it_is_whole_and_has_its_key(tmp_path, program) -> None:
    half, sif = tmp_path / "half.sif", tmp_path / "images" / "cpu.sif"
    half.write_bytes(b"image")
    sif.parent.mkdir()
    (sif.parent / ".cpu.sif.123").write_bytes(b"left by a crash")
    checksum = image.publish(half, sif)
    assert sorted(file.name for file in sif.parent.iterdir()) == ["cpu.sif", "cpu.sif.sha256"]
    assert sif.read_bytes() == b"image" and not half.exists()
    assert checksum in sif.with_name("cpu.sif.sha256").read_text()
    check = ["sha256sum", "--check", "cpu.sif.sha256"]
    done = subprocess.run(check, cwd=sif.parent, env={}, capture_output=True, text=True, check=True)
    assert done.stdout == "cpu.sif: OK\n"
    labels = json.dumps({"data": {"attributes": {"labels": {"horoscale.key": "abc"}}}})
    runtime = str(program("apptainer", f"echo '{labels}'"))
    assert image.is_current(runtime, sif, "abc")
    assert not image.is_current(runtime, sif, "abd")
    assert not image.is_current("/bin/false", sif, "abc")  # unreadable
    sif.write_bytes(b"imagf")
    assert not image.is_current(runtime, sif, "abc")
    sif.write_bytes(b"image")
    sif.with_name("cpu.sif.sha256").unlink()  # a crash came between the two
    assert not image.is_current(runtime, sif, "abc")
    sif.unlink()
    assert not image.is_current(runtime, sif, "abc")


@pytest.mark.parametrize(
    ("user", "needed", "installed", "says"),
    [
        ("nemo", 0, (), r"usermod --add-subuids .* nemo "),
        ("somebody", 10**18, (), "GB free, building the cpu image needs 1000000000"),
        ("somebody", 0, (), r"the program debootstrap.* is missing.*docs/images\.md"),
        ("somebody", 0, ("debootstrap",), r"absent.gpg.* is missing.*docs/images\.md"),
    ],
)
def test_what_the_machine_lacks_is_said_before_the_work(
    program, monkeypatch, tmp_path, user, needed, installed, says
) -> None:
    monkeypatch.setattr(image_prepare, "maps_ids", lambda user: user == "somebody")
    monkeypatch.setattr(image_prepare, "debian_codename", lambda: "")
    monkeypatch.setitem(image_prepare.NEEDED_BYTES, "cpu", needed)
    monkeypatch.setattr(image_prepare, "KEYRING", Path("/absent.gpg"))
    for name in installed:
        program(name)
    with pytest.raises(SetupError, match=says):
        image_prepare.check_machine("cpu", tmp_path, user)


def test_a_step_shows_signs_of_life_and_where_it_fails_its_log(
    tmp_path, monkeypatch, capfd
) -> None:
    (tmp_path / "log").touch()
    steps = image_steps.Steps(user="nobody", work=tmp_path, log=tmp_path / "log")
    monkeypatch.setattr(image_steps, "SIGN_OF_LIFE_S", 0.2)
    message = r"(?s)testing failed \(exit code 7\)\. Look there\..*no space"
    with pytest.raises(SetupError, match=message):
        steps.run(
            ["sh", "-c", "echo no space; sleep 3; exit 7"], "testing", os.environ, "Look there."
        )
    assert re.search(r"testing(?s:.*)\.\.\. \d+ s: no space", capfd.readouterr().err)
    with pytest.raises(SetupError, match="cannot start no-such-program"):
        steps.run(["no-such-program"], "testing", os.environ, "Look there.")


def test_what_a_crashed_build_left_is_removed(tmp_path) -> None:
    folder = tmp_path / "tmp"
    (folder / "build-temp-1" / "rootfs").mkdir(parents=True)
    image_steps.remove_tree("nobody", folder)
    assert not folder.exists()
    image_steps.remove_tree("nobody", folder)  # nothing to do is no error


def test_the_build_keeps_its_trees_off_tmp_and_gets_proxies_and_certificates(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    monkeypatch.setenv("no_proxy", "localhost")
    environment = image_prepare.environment_of_build(tmp_path, Path("/ca.pem"))
    assert environment["APPTAINER_TMPDIR"] == str(tmp_path / "tmp")
    assert environment["https_proxy"] == environment["HTTPS_PROXY"] == "http://p:1"
    assert environment["no_proxy"] == environment["NO_PROXY"] == "localhost"
    assert environment["SSL_CERT_FILE"] == environment["PIP_CERT"] == "/ca.pem"


TARGETS = """\
http://mirror.site/debian/ bookworm contrib
http://mirror.site/debian/ bookworm main
http://mirror.site/debian-security/ bookworm-security main
http://elsewhere/apt nodistro main
"""


def test_mirrors_are_the_machines_own_unless_the_user_names_others(monkeypatch) -> None:
    monkeypatch.setattr(image_mirrors, "index_targets", lambda: TARGETS)
    monkeypatch.setattr(image_mirrors, "debian_codename", lambda: "bookworm")
    assert image_mirrors.debian_mirror({}) == "http://mirror.site/debian"
    security = "http://mirror.site/debian-security"
    assert image_mirrors.security_mirror({}, "bookworm") == security
    named = {"DEBIAN_MIRROR": "http://mine/debian/", "DEBIAN_SECURITY_MIRROR": "http://mine/sec/"}
    assert image_mirrors.debian_mirror(named) == "http://mine/debian"
    assert image_mirrors.security_mirror(named, "bookworm") == "http://mine/sec"
    assert image_mirrors.security_mirror({}, "trixie") is None
    monkeypatch.setattr(image_mirrors, "debian_codename", lambda: "trixie")
    with pytest.raises(SetupError, match="DEBIAN_MIRROR=http"):
        image_mirrors.debian_mirror({})


def test_ca_bundle(tmp_path) -> None:
    bundle = tmp_path / "site.pem"
    bundle.write_text("certificates")
    assert image_mirrors.ca_bundle({}) is None
    assert image_mirrors.ca_bundle({"PIP_CERT": "/absent", "CA": str(bundle)}) == bundle
    with pytest.raises(SetupError, match="PIP_CERT=/absent found, expected a file"):
        image_mirrors.ca_bundle({"PIP_CERT": "/absent"})


def test_apt_settings_leave_out_this_machine_s_certificate_files(program) -> None:
    proxy = 'Acquire::http::Proxy "http://p:1";'
    program("apt-config", f"echo 'Acquire::https::CAInfo \"/etc/site.pem\";'\necho '{proxy}'")
    assert image_mirrors.apt_settings() == f"{proxy}\n"


def test_only_packages_with_the_right_content_count(tmp_path) -> None:
    good, other = (hashlib.sha256(text).hexdigest() for text in (b"wheel", b"other"))
    text = (
        f"a==1 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{good}\nb==2 \\\n"
        f"    --hash=sha256:{other}\n"
    )
    assert image_downloads.missing(text, tmp_path) == ["a", "b"]
    (tmp_path / "a-1.whl").write_bytes(b"wheel")
    (tmp_path / "b-2.whl").write_bytes(b"othe")  # cut off by a crash
    assert image_downloads.missing(text, tmp_path) == ["b"]
    (tmp_path / "b-2.whl").write_bytes(b"other")
    assert image_downloads.missing(text, tmp_path) == []


def test_wheels_are_asked_for_the_python_of_the_image_and_sources_for_none() -> None:
    pip, listing, folder = ["pip"], Path("r.txt"), Path("d")
    wheels, sources = (
        set(image_downloads.download_command(pip, listing, folder, "x86_64", source=source))
        for source in (False, True)
    )
    libraries = {f"--platform=manylinux{name}_x86_64" for name in ("2014", "_2_28", "_2_36")}
    # Debian 12 has C library 2.36: a wheel for a newer one would not load
    assert {"--python-version=3.11", "--only-binary=:all:", *libraries} <= wheels
    assert "--platform=manylinux_2_37_x86_64" not in wheels
    assert not [token for token in sources if token.startswith(("--platform", "--only-binary"))]
    assert {"--require-hashes", "--no-deps"} <= wheels & sources
