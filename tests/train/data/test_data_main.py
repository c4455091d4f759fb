"""The command as a user runs it: exit codes, messages, an interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.sweeps import ROOT, wait_until
from tests.train.data.raw_files import class_folders, picture
from train.data.__main__ import main
from train.data.registry import DatasetFiles

Done = subprocess.CompletedProcess[str]


def started(*arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "train.data", *map(str, arguments)],
        cwd=ROOT, env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def run(*arguments: str | Path, **environment: str) -> Done:
    process = started(*arguments, **environment)
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err
    return Done([], process.returncode, out, err)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return class_folders(tmp_path / "pets", {"cat": 20, "dog": 10})


def test_one_json_line(pets: Path, tmp_path: Path) -> None:
    dataset, root = f"folder:{pets}", tmp_path / "root"
    files = DatasetFiles(dataset, root, 12)
    done = run("prepare", dataset, "--root", root, "--image-size", "12")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout) == {
        "name": "pets",
        "form": files.forms()[0],
        "train_images": 24,
        "validation_images": 6,
        "shape": [12, 12, 3],
        "classes": 2,
        "fingerprint": files.load().fingerprint,
    }
    assert "preparing folder:" in done.stderr
    again = run("prepare", dataset, "--image-size", "12", DATA=str(root))  # the root's default
    assert (again.stdout, again.stderr) == (done.stdout, "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cifar-10"], "did you mean 'cifar10'?"),
        (["qqq"], "known: digits, cifar10, fashion_mnist, mnist, synthetic, folder:PATH, arr"),
        (["folder:"], "unknown dataset 'folder:'"),
        (["arrays:birds.csv"], "expected arrays:FILE.npz"),
        (["arrays:birds.npz"], "birds.npz: expected arrays in a .npz file, in the data folder"),
        (["digits", "--image-size", "32"], "image size is for folder:PATH"),
        (["folder:gone", "--image-size", "7"], "image size 7 found, expected 8 to 1024"),
    ],
)
def test_wrong_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert main(["prepare", *arguments, "--root", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err


def test_a_data_folder_of_nobody() -> None:
    done = run("prepare", "digits", DATA="~nobody-here/x")
    assert done.returncode == 2 and "no user ~nobody-here is known" in done.stderr


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGHUP, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)],
)
def test_interrupt_leaves_nothing_half(
    pets: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """In the midst of decoding 1,000 large pictures, which would take many seconds: on any number
    of cores those of one task, one after another.

    Not as the decoding threads start: an interrupt inside Thread.start() may release a lock of
    the new thread's (CPython 3.11), whose traceback is then printed.
    """
    large = picture(pets / "dog" / "large.bmp", (3000, 3000))
    for i in range(1000):
        (pets / "dog" / f"large{i}.bmp").hardlink_to(large)
    process = started("prepare", f"folder:{pets}", "--root", tmp_path / "root")
    assert process.stderr is not None
    assert "preparing" in process.stderr.readline()
    child = psutil.Process(process.pid)
    used_s = sum(child.cpu_times()[:2])
    wait_until(lambda: sum(child.cpu_times()[:2]) > used_s + 1, "some decoding")
    sent_at = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=240)
    assert time.monotonic() - sent_at < 60
    assert process.returncode == code
    assert "Traceback" not in err
    assert [file.suffix for file in (tmp_path / "root").glob("prepared/*")] == [".lock"]
