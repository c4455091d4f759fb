"""Building images: refusals before anything is done, and nothing half-made under a good name."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def image(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "containers"))
    import image

    monkeypatch.setattr(image, "FOLDER", tmp_path / "images")
    return image


@pytest.fixture
def prepare(image, monkeypatch):
    import image_prepare

    monkeypatch.setattr(image_prepare, "maps_ids", lambda user: user == "somebody")
    return image_prepare


def fake_apptainer(folder: Path, labels: dict[str, str]) -> str:
    """Stands for the program: says these labels of any image."""
    told = json.dumps({"data": {"attributes": {"labels": labels}}})
    program = folder / "fake-apptainer"
    program.write_text(f"#!/bin/sh\necho '{told}'\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("arguments", ([], ["cpu", "gpu"], ["rocm"]))
def test_a_wrong_name_is_refused(image, capsys, arguments) -> None:
    assert image.main(arguments) == 2
    assert "expected one of: cpu, gpu" in capsys.readouterr().err


def test_publishing_leaves_the_image_and_its_checksum_only(image, tmp_path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / ".cpu.sif.123").write_bytes(b"left by a crash")
    half = tmp_path / "half.sif"
    half.write_bytes(b"image")
    found = image.publish(half, folder / "cpu.sif")
    assert sorted(file.name for file in folder.iterdir()) == ["cpu.sif", "cpu.sif.sha256"]
    assert (folder / "cpu.sif").read_bytes() == b"image" and not half.exists()
    check = ["sha256sum", "--check", "cpu.sif.sha256"]
    done = subprocess.run(check, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout == "cpu.sif: OK\n"
    assert found in (folder / "cpu.sif.sha256").read_text()


def test_current_means_same_key_and_undamaged(image, tmp_path) -> None:
    half = tmp_path / "half.sif"
    half.write_bytes(b"image")
    sif = tmp_path / "images" / "cpu.sif"
    program = fake_apptainer(tmp_path, {"horoscale.key": "abc"})
    assert not image.is_current(program, sif, "abc")
    image.publish(half, sif)
    assert image.is_current(program, sif, "abc")
    assert not image.is_current(program, sif, "abd")
    assert not image.is_current("/bin/false", sif, "abc")  # unreadable
    sif.write_bytes(b"imagf")
    assert not image.is_current(program, sif, "abc")
    sif.write_bytes(b"image")
    (tmp_path / "images" / "cpu.sif.sha256").unlink()  # a crash came between the two
    assert not image.is_current(program, sif, "abc")


def test_a_full_disk_is_seen_before_the_work(prepare, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(prepare.NEEDED_BYTES, "cpu", 10**18)
    with pytest.raises(
        prepare.SetupError, match=r"GB free, building the cpu image needs 1000000000"
    ):
        prepare.check_machine("cpu", tmp_path, "somebody")


@pytest.mark.parametrize("absent", ("debootstrap", "keys"))
def test_without_debootstrap_or_its_keys(prepare, tmp_path, monkeypatch, absent) -> None:
    monkeypatch.setattr(prepare, "debian_codename", lambda: "")
    monkeypatch.setitem(prepare.NEEDED_BYTES, "cpu", 0)
    if absent == "debootstrap":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.setattr(prepare, "KEYRING", tmp_path / "absent.gpg")
        fake = tmp_path / "debootstrap"
        fake.touch(mode=0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(prepare.SetupError, match=r"docs/images\.md") as caught:
        prepare.check_machine("cpu", tmp_path, "somebody")
    assert "the program debootstrap" in str(caught.value) or absent == "keys"
    assert "absent.gpg" in str(caught.value) or absent == "debootstrap"


def test_a_user_without_mapped_ids_is_told_what_to_ask_for(prepare, tmp_path) -> None:
    with pytest.raises(prepare.SetupError, match=r"usermod --add-subuids .* nemo "):
        prepare.check_machine("cpu", tmp_path, "nemo")


def test_a_checkout_of_somebody_else_is_refused_at_once(image, monkeypatch, capsys) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert image.main(["cpu"]) == 2
    assert "cannot be written, expected a folder for the image" in capsys.readouterr().err


def steps(image, tmp_path):
    from image_steps import Steps

    log = tmp_path / "log"
    log.touch()
    return Steps(user="nobody", work=tmp_path, log=log)


def test_a_failing_step_shows_the_end_of_its_log(image, tmp_path, capfd) -> None:
    with pytest.raises(
        image.SetupError, match=r"(?s)testing failed \(exit code 7\)\. Look there\..*no space"
    ):
        steps(image, tmp_path).run(
            ["sh", "-c", "echo no space; exit 7"], "testing", os.environ, "Look there."
        )
    assert "testing" in capfd.readouterr().err


def test_a_missing_program_is_named(image, tmp_path) -> None:
    with pytest.raises(image.SetupError, match="cannot start no-such-program"):
        steps(image, tmp_path).run(["no-such-program"], "testing", os.environ, "Look there.")


def test_a_long_step_shows_signs_of_life(image, tmp_path, monkeypatch, capfd) -> None:
    import image_steps

    monkeypatch.setattr(image_steps, "SIGN_OF_LIFE_S", 0.2)
    steps(image, tmp_path).run(
        ["sh", "-c", "echo unpacking; sleep 1"], "testing", os.environ, "Look there."
    )
    assert re.search(r"\.\.\. \d+ s: unpacking", capfd.readouterr().err)


def test_what_a_crashed_build_left_is_removed(image, tmp_path) -> None:
    from image_steps import remove_tree

    left = tmp_path / "tmp" / "build-temp-1" / "rootfs"
    left.mkdir(parents=True)
    remove_tree("nobody", tmp_path / "tmp")
    assert not (tmp_path / "tmp").exists()
    remove_tree("nobody", tmp_path / "tmp")  # nothing to do is no error


def test_the_build_keeps_its_trees_off_tmp(prepare, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    environment = prepare.environment_of_build(tmp_path, Path("/ca.pem"))
    assert environment["APPTAINER_TMPDIR"] == str(tmp_path / "tmp")
    assert environment["https_proxy"] == "http://p:1"
    assert environment["SSL_CERT_FILE"] == environment["PIP_CERT"] == "/ca.pem"
