"""One process makes a data set, the others wait for it and show signs of life."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.sweeps import wait_until
from tests.train.data.raw_files import noise, published
from train.data import registry
from train.data.registry import prepare
from train.data.sources.download import fetch_all
from train.data.waiting import heard_by, one_at_a_time

ROOT = Path(__file__).resolve().parents[3]


def test_what_is_downloaded_lies_with_the_prepared_form_where_the_data_folder_is_closed(
    tmp_path: Path, monkeypatch
) -> None:
    """A folder of root's, for a class or the practice cluster's user."""
    root, store = tmp_path / "root", tmp_path / "store"
    root.mkdir()
    fetched: list[Path] = []
    monkeypatch.setattr(registry, "fetch_all", lambda _, folder, __: fetched.append(folder))
    monkeypatch.setattr(registry, "is_writable", lambda folder: folder.is_relative_to(store))
    with pytest.raises(AssertionError, match="what was fetched is not"):  # nothing was, here
        prepare("fashion_mnist", None, root, store_root=store)
    assert fetched == [store / "fashion_mnist"]


def test_who_is_second_waits_and_finds_it_made(tmp_path: Path) -> None:
    """As a rank started by hand beside one that still downloads."""
    code = "import sys; from pathlib import Path; from train.data.registry import prepare\n"
    code += "print(prepare('digits', None, Path(sys.argv[1])))"
    with one_at_a_time(tmp_path / "prepared", "digits") as waited:
        assert not waited
        second = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert second.stderr is not None
        assert "another process prepares digits: waiting" in second.stderr.readline()
        time.sleep(1)
        assert second.poll() is None
        assert not list((tmp_path / "prepared").glob("digits*"))
    made, said = second.communicate(timeout=240)
    assert "preparing digits" in said and Path(made.strip()).is_dir()
    assert not list((tmp_path / "prepared").glob(".*")), "no lock is left"


def test_of_several_at_once_one_makes_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "train.data", "prepare", "digits", "--root", str(tmp_path)]
    several = [
        subprocess.Popen(
            argv, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]  # fmt: skip
    said = [process.communicate(timeout=240)[1] for process in several]
    assert [process.returncode for process in several] == [0, 0, 0]
    assert sum("preparing digits" in text for text in said) == 1, said


def test_a_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from train.data.waiting import one_at_a_time\n"
    )
    code += "with one_at_a_time(Path(sys.argv[1]), 'digits'):\n"
    code += "    print('held', flush=True); time.sleep(60)"
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        holder.kill()
    with one_at_a_time(tmp_path, "digits") as waited:
        assert not waited


def test_who_waits_shows_life_as_long_as_the_holder_does(tmp_path: Path) -> None:
    heard: list[str] = []
    code = "import sys; from pathlib import Path; from train.data.waiting import one_at_a_time\n"
    code += "from train.data.waiting import goes_on\n"
    code += "with one_at_a_time(Path(sys.argv[1]), 'digits'):\n"
    code += "    print('held', flush=True)\n"
    code += "    for line in sys.stdin: goes_on(line)\n"
    argv = [sys.executable, "-c", code, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, cwd=ROOT, text=True, **pipes) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"

        def wait() -> None:
            with heard_by(heard.append), one_at_a_time(tmp_path, "digits"):
                pass

        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(lambda: len(heard) >= 2, "the first signs")
        time.sleep(2)
        before = len(heard)
        time.sleep(2)
        assert len(heard) == before, "the holder shows no life"
        assert holder.stdin is not None
        holder.stdin.write("decoding\n")
        holder.stdin.flush()
        wait_until(lambda: len(heard) > before, "a sign after the holder's")
        holder.stdin.close()
        waiter.join(240)
    assert not waiter.is_alive()


def test_where_nothing_can_be_written_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with one_at_a_time(tmp_path / "file" / "prepared", "digits") as waited:
        assert not waited


def test_the_watchdog_hears_of_a_download_a_decode_and_a_write(tmp_path: Path) -> None:
    heard: list[str] = []
    file = tmp_path / "set.bin"
    file.write_bytes(noise(3_000_000))
    with heard_by(heard.append):
        fetch_all([published(file)], tmp_path / "data")
        fetched = len(heard)
        prepare("digits", None, tmp_path / "data")
    fetch_all([published(file)], tmp_path / "again")
    assert fetched > 3 and "set.bin: 3,000,000 of 3,000,000 bytes" in heard[fetched - 1]
    rest = "\n".join(heard[fetched:])
    assert "preparing digits" in rest and "bytes hashed or written" in rest
    assert all(text.startswith("loading the data: ") for text in heard)
    assert "again" not in rest, "whoever no longer listens hears nothing"
