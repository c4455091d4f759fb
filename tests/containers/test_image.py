"""Building images: refusals before anything is done, and nothing half-made under a good name."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import image
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


@pytest.fixture
def sif(tmp_path) -> Path:
    """A published image of five bytes."""
    half = tmp_path / "half.sif"
    half.write_bytes(b"image")
    sif = tmp_path / "images" / "cpu.sif"
    sif.parent.mkdir()
    (sif.parent / ".cpu.sif.123").write_bytes(b"left by a crash")
    checksum = image.publish(half, sif)
    assert checksum in sif.with_name("cpu.sif.sha256").read_text()
    return sif


def test_publishing_leaves_the_image_and_its_checksum_only(sif, tmp_path) -> None:
    assert sorted(file.name for file in sif.parent.iterdir()) == ["cpu.sif", "cpu.sif.sha256"]
    assert sif.read_bytes() == b"image" and not (tmp_path / "half.sif").exists()
    check = ["sha256sum", "--check", "cpu.sif.sha256"]
    done = subprocess.run(check, cwd=sif.parent, capture_output=True, text=True, check=True)
    assert done.stdout == "cpu.sif: OK\n"


def test_current_means_same_key_and_undamaged(sif, program) -> None:
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


@pytest.fixture
def small(monkeypatch) -> None:
    """An image that needs no room, on a machine without apt-get."""
    monkeypatch.setattr(image_prepare, "maps_ids", lambda user: user == "somebody")
    monkeypatch.setattr(image_prepare, "debian_codename", lambda: "")
    monkeypatch.setitem(image_prepare.NEEDED_BYTES, "cpu", 0)
    monkeypatch.setattr(image_prepare, "KEYRING", Path("/absent.gpg"))


def test_a_full_disk_is_seen_before_the_work(small, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(image_prepare.NEEDED_BYTES, "cpu", 10**18)
    with pytest.raises(SetupError, match="GB free, building the cpu image needs 1000000000"):
        image_prepare.check_machine("cpu", tmp_path, "somebody")


@pytest.mark.parametrize(
    ("installed", "missing"), [((), "the program debootstrap"), (("debootstrap",), "absent.gpg")]
)
def test_without_debootstrap_or_its_keys(small, program, tmp_path, installed, missing) -> None:
    for name in installed:
        program(name)
    with pytest.raises(SetupError, match=rf"{missing}.* is missing.*docs/images\.md"):
        image_prepare.check_machine("cpu", tmp_path, "somebody")


def test_a_user_without_mapped_ids_is_told_what_to_ask_for(small, tmp_path) -> None:
    with pytest.raises(SetupError, match=r"usermod --add-subuids .* nemo "):
        image_prepare.check_machine("cpu", tmp_path, "nemo")


@pytest.fixture
def step(tmp_path):
    """Run a command as a step of a build."""
    (tmp_path / "log").touch()
    steps = image_steps.Steps(user="nobody", work=tmp_path, log=tmp_path / "log")
    return lambda *command: steps.run(command, "testing", os.environ, "Look there.")


def test_a_failing_step_shows_the_end_of_its_log(step, capfd) -> None:
    message = r"(?s)testing failed \(exit code 7\)\. Look there\..*no space"
    with pytest.raises(SetupError, match=message):
        step("sh", "-c", "echo no space; exit 7")
    assert "testing" in capfd.readouterr().err
    with pytest.raises(SetupError, match="cannot start no-such-program"):
        step("no-such-program")


def test_a_long_step_shows_signs_of_life(step, monkeypatch, capfd) -> None:
    monkeypatch.setattr(image_steps, "SIGN_OF_LIFE_S", 0.2)
    step("sh", "-c", "echo unpacking; sleep 1")
    assert re.search(r"\.\.\. \d+ s: unpacking", capfd.readouterr().err)


def test_what_a_crashed_build_left_is_removed(tmp_path) -> None:
    folder = tmp_path / "tmp"
    (folder / "build-temp-1" / "rootfs").mkdir(parents=True)
    image_steps.remove_tree("nobody", folder)
    assert not folder.exists()
    image_steps.remove_tree("nobody", folder)  # nothing to do is no error


def test_the_build_keeps_its_trees_off_tmp(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    environment = image_prepare.environment_of_build(tmp_path, Path("/ca.pem"))
    assert environment["APPTAINER_TMPDIR"] == str(tmp_path / "tmp")
    assert environment["https_proxy"] == "http://p:1"
    assert environment["SSL_CERT_FILE"] == environment["PIP_CERT"] == "/ca.pem"
