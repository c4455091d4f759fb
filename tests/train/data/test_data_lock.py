"""One process makes a data set, the others wait for it and show signs of life."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.sweeps import ROOT, wait_until
from tests.train.data.raw_files import class_folders, noise, published
from train.data import registry
from train.data.registry import DatasetFiles
from train.data.sources.download import fetch_all
from train.data.waiting import one_at_a_time, report_to

HOLDER = """
import sys
from pathlib import Path
from train.data.waiting import one_at_a_time
with one_at_a_time(Path(sys.argv[1]), "digits"):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


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
        DatasetFiles("mnist", root, store=store).prepare()
    assert fetched == [store / "mnist"]


def test_of_several_at_once_one_makes_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "train.data", "prepare", "digits", "--root", str(tmp_path)]
    with one_at_a_time(tmp_path / "prepared", "digits"):
        several = [
            subprocess.Popen(
                argv, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for _ in range(2)
        ]  # fmt: skip
        for process in several:
            assert process.stderr is not None
            assert "another process prepares digits: waiting" in process.stderr.readline()
        assert not list((tmp_path / "prepared").glob("digits*"))
    outputs = [process.communicate(timeout=240) for process in several]
    assert [process.returncode for process in several] == [0, 0]
    assert outputs[0][0] == outputs[1][0] != ""
    assert sum("preparing digits" in err for _, err in outputs) == 1, outputs


def test_a_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    heard: list[str] = []
    with holder(tmp_path) as process:

        def wait() -> None:
            with report_to(heard.append), one_at_a_time(tmp_path, "digits"):
                heard.append("mine")

        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(lambda: len(heard) >= 3, "signs of life of the one that waits")
        assert all("another process prepares digits" in text for text in heard)
        process.kill()
        waiter.join(240)
    assert heard[-1] == "mine"


def test_where_a_file_system_has_no_locks_nobody_waits(tmp_path: Path, monkeypatch) -> None:
    """As Lustre without its option flock. A soft lock would outlive a killed process."""

    def none(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    with holder(tmp_path):
        monkeypatch.setattr("fcntl.flock", none)
        with one_at_a_time(tmp_path, "digits"):
            pass


def test_the_watchdog_hears_of_a_download_a_decode_and_a_write(tmp_path: Path) -> None:
    heard: list[str] = []
    file = tmp_path / "set.bin"
    file.write_bytes(noise(3_000_000))
    pets = class_folders(tmp_path / "pets", {"cat": 5, "dog": 5})
    with report_to(heard.append):
        fetch_all([published(file)], tmp_path / "data")
        fetched = len(heard)
        DatasetFiles(f"folder:{pets}", tmp_path / "data", 16).prepare()
    fetch_all([published(file)], tmp_path / "again")
    assert fetched > 3 and "set.bin: 3,000,000 of 3,000,000 bytes" in heard[fetched - 1]
    rest = "\n".join(heard[fetched:])
    for part in ("listing", "preparing folder:", "decoding: 10 of 10", "rows hashed or written"):
        assert part in rest
    assert all(text.startswith("loading the data: ") for text in heard)
    assert "again" not in rest, "whoever no longer listens hears nothing"


def test_a_long_task_is_seen(capsys, monkeypatch) -> None:
    from train.data import waiting

    waiting.say("begun")
    waiting.progress("quick")
    monkeypatch.setattr(waiting, "_SILENT_S", -1.0)
    waiting.progress("slow")
    assert capsys.readouterr().err == "data: begun\ndata: slow\n"
