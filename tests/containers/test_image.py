"""Building images: refusals, nothing half-made under a good name, and root's hands off a place that
the building user can write."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import image
import pytest
import users
from runner import only_one

from tests.sweeps import copy_checkout, executable, ran, wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("arguments", ([], ["cpu", "gpu"], ["rocm"]))
def test_a_wrong_name_is_refused(capsys, arguments) -> None:
    assert image.main(arguments) == 2
    assert "expected one of: cpu, gpu" in capsys.readouterr().err


def test_a_checkout_of_somebody_else_is_refused_at_once(tmp_path, monkeypatch, capsys) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "images"))

    monkeypatch.setattr(image, "make", refuse)
    assert image.main(["cpu"]) == 2
    assert "Permission denied" in (said := capsys.readouterr().err)
    assert "uild in a checkout of your own; the next make goes on from here" in said


def test_an_image_is_current_while_it_is_whole_and_has_its_key(tmp_path, program) -> None:
    sif = tmp_path / "images" / "cpu.sif"
    sif.parent.mkdir()
    half = sif.with_name(".cpu.sif.123")
    half.write_bytes(b"image")
    checksum = image.publish(half, sif)
    assert sorted(file.name for file in sif.parent.iterdir()) == ["cpu.sif", "cpu.sif.sha256"]
    assert sif.read_bytes() == b"image" and not half.exists()
    assert checksum in sif.with_name("cpu.sif.sha256").read_text()
    check = ["sha256sum", "--check", "cpu.sif.sha256"]
    assert ran(check, cwd=sif.parent, env={}).stdout == "cpu.sif: OK\n"
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


STAND_IN = """#!/bin/sh
# for apptainer: what it builds is its second word from behind
case $* in *--help) exec echo --build-arg ;; build*) ;; *) exit 1 ;; esac
for word; do image=$last; last=$word; done
id -un >"$(dirname "$image")/../built-by"
own=$(dirname "$0")
[ ! -e "$own/slow" ] || exec sleep 600
case $image in
*/cpu.sif) [ ! -L "$own/planted" ] && echo image >"$image" || cp -P "$own/planted" "$image" ;;
*) echo base >"$image" ;;
esac
"""


@pytest.fixture
def place(open_folder: Path, practice_user: str | None) -> Path:
    """A folder with a checkout of root's, a stand-in for Apptainer, and the builder's own cache."""
    if practice_user is None:
        pytest.skip("only root builds as another user")
    tools = ("unshare", "setpriv", "debootstrap")
    if absent := [name for name in tools if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(absent)} not found")
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("this machine lets root make no mounts: its own Python stays closed to others")
    checkout = copy_checkout(open_folder / "checkout")
    executable(open_folder / "bin" / "apptainer", STAND_IN)
    downloads = open_folder / "cache" / "horoscale" / "images" / "downloads"
    downloads.mkdir(parents=True)
    for file in (checkout / "containers" / "locks").iterdir():
        pins = re.findall(r"(?m)^[^ #\\]+==[^ ]+", file.read_text())
        hashes = {pin: hashlib.sha256(pin.encode()).hexdigest() for pin in pins}
        file.write_text("".join(f"{pin} --hash=sha256:{hashes[pin]}\n" for pin in pins))
        for pin in pins:
            (downloads / f"{pin.replace('==', '-')}.whl").write_bytes(pin.encode())
    users.give(open_folder / "cache", practice_user)
    return open_folder


def make_image(place: Path) -> subprocess.CompletedProcess[str]:
    argv, env = image_argv(place)
    return ran(argv, cwd=place / "checkout", env=env)


def image_argv(place: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment of make image."""
    seen = {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "XDG_CACHE_HOME": str(place / "cache"),
        "DEBIAN_MIRROR": "http://absent/debian",
    }
    argv = [sys.executable, str(place / "checkout" / "containers" / "image.py"), "cpu"]
    return argv, {**os.environ, **seen}


def plant(place: Path, *parts: str) -> Path:
    """A link of the builder's to a file of root's, which is returned."""
    secret = place / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    link = place.joinpath("cache", "horoscale", "images", *parts)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(secret)
    users.give(place / "cache", users.PRACTICE_USER)
    return secret


def test_a_user_without_a_name_is_told_what_is_missing(
    tmp_path, monkeypatch, capsys, program
) -> None:
    """As in a container that is started with --user 4711. Seen: a bare KeyError."""

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(image.pwd, "getpwuid", unknown)
    monkeypatch.setattr(image.os, "geteuid", lambda: 4711)
    monkeypatch.setattr(image.inputs, "work_folder", lambda: tmp_path)
    (tmp_path / "tmp").mkdir()
    apptainer = program("apptainer", "echo --build-arg")
    assert image.main(["cpu", "commit", str(apptainer)]) == 2
    assert "4711 has no range of ids" in capsys.readouterr().err


def test_a_terminal_that_does_not_wait_ends_no_build(tmp_path, monkeypatch) -> None:
    """Seen: BlockingIOError, where a program before had left it with O_NONBLOCK."""
    own = [sys.executable, "-c", "import os; os.write(2, b'y' * 300000)"]
    monkeypatch.setattr(image, "debian_codename", lambda: "")
    monkeypatch.setattr(image, "ensure_user", lambda: "nobody")
    monkeypatch.setattr(image, "enter_argv", lambda *_: own)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    kept = os.dup(2)
    slow = subprocess.Popen(["sh", "-c", "sleep 1; wc -c"], stdin=reader, stdout=subprocess.PIPE)
    os.dup2(writer, 2)
    try:
        with (tmp_path / "out").open("wb") as out:
            image.build_as_user("apptainer", "cpu", out)
    finally:
        os.dup2(kept, 2)
        for handle in (kept, reader, writer):
            os.close(handle)
    assert int(slow.communicate()[0]) == 300000


def test_root_has_the_builder_build_and_takes_the_image(place: Path) -> None:
    done = make_image(place)
    assert done.returncode == 0, done.stderr
    made = place / "checkout" / "containers" / "images" / "cpu.sif"
    assert made.read_text() == "image\n" and made.owner() == "root"
    work = place / "cache" / "horoscale" / "images"
    assert (work / "built-by").read_text() == f"{users.PRACTICE_USER}\n"
    assert {path.owner() for path in work.rglob("*")} == {users.PRACTICE_USER}


@pytest.mark.parametrize(
    "parts",
    [("cpu.log",), (".lock",), ("base.def",), ("cpu.def",), ("apt.conf",), ("ca.crt",),
     ("image_build.sh",), ("locks", "packages")],
    ids=str,
)  # fmt: skip
def test_root_writes_through_no_link_that_the_builder_planted(place: Path, parts) -> None:
    secret = plant(place, *parts)
    done = make_image(place)
    assert done.returncode == (2 if ".lock" in parts else 0), done.stderr
    assert "Traceback" not in done.stderr
    assert secret.read_text() == "of root" and secret.owner() == "root"


def test_files_that_root_left_in_the_builder_s_folder_are_no_hindrance(place: Path) -> None:
    """As earlier releases did."""
    work = place / "cache" / "horoscale" / "images"
    for name in ("cpu.log", ".lock", "base.def", "apt.conf"):
        (work / name).touch()
    done = make_image(place)
    assert done.returncode == 0, done.stderr


def test_root_hands_out_no_file_that_the_builder_calls_an_image(place: Path) -> None:
    secret = plant(place, "link")
    (place / "bin" / "planted").symlink_to(secret)
    done = make_image(place)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert [file.name for file in image_files(place)] == [".lock"]


@pytest.mark.parametrize("module", ["pip", "venv", "encodings"])
def test_root_runs_no_module_that_the_builder_planted(place: Path, module: str) -> None:
    work = place / "cache" / "horoscale" / "images"
    (work / module).mkdir()
    for name in ("__init__", "__main__"):
        (work / module / f"{name}.py").write_text(f"open({str(work / 'ran')!r}, 'w').close()\n")
    next((work / "downloads").glob("pillow-*")).unlink()  # pip is needed
    users.give(place / "cache", users.PRACTICE_USER)
    done = make_image(place)
    assert done.returncode == 2 and "downloading pillow" in done.stderr
    assert not (work / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_root_told_to_end_ends_the_builder_s_commands_first(place: Path, number) -> None:
    """Else the next build would meet them in its folder."""
    argv, env = image_argv(place)
    work = place / "cache" / "horoscale" / "images"
    (place / "bin" / "slow").touch()
    with subprocess.Popen(
        argv, cwd=place / "checkout", env=env, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: (work / "built-by").exists() or process.poll() is not None, "a build")
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and "the next make goes on from here" in said, said
    with only_one(work / ".lock", lambda: pytest.fail("a command of the build holds the lock")):
        assert [file.name for file in image_files(place)] == [".lock"]


def image_files(place: Path) -> list[Path]:
    return sorted((place / "checkout" / "containers" / "images").iterdir())
