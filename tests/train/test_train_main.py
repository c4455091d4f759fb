"""`python -m train` by hand: every wrong request in words, and a record of every start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders import config, epoch, record
from train.environment import environment_of
from train.record.atomic import append_line
from train.record.cell_folder import (
    EPOCHS_NAME,
    EXIT_UNFINISHED,
    START_NAME,
    STOP_NAME,
    ended_record,
    rank_file,
    read_epochs,
    read_failures,
)
from train.record.run import RECORD_NAME, RunError, read_record, write_record
from train.run.failure import leave_record
from train.schemas import main as export_schemas

ROOT = Path(__file__).resolve().parents[2]
ERROR = RunError(what="disk on fire", where="rank 0", what_to_do="water")


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    """A folder with a config that no world of one may train."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "config.json").write_text(config(gpus=2).model_dump_json())
    return tmp_path


def train(cell: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "train", str(cell / "config.json"), *options],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=600,
        env=environment_of("ranks", os.environ) | environment,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        (["--attempt", "0"], {}, "--attempt"),
        (["--attempt", "one"], {}, "--attempt"),
        (["--stall-s", "-1"], {}, "--stall-s"),
        (["--stall-s", "nan"], {}, "--stall-s"),
        (["--stop-at", "soon"], {}, "--stop-at"),
        ([], {"HOROVOD_RANK": "0"}, "HOROVOD_SIZE is None"),
        ([], {"RANK": "2"}, "rank 2 of a world of 2"),
        ([], {"CORES": "0,x"}, "HOROSCALE_CORES is '0,x'"),
        ([], {"CORES": "4000"}, "cores 4000"),
        ([], {"SUPERVISOR": "me"}, "HOROSCALE_SUPERVISOR is 'me'"),
    ],
)
def test_a_wrong_request_is_told_without_a_traceback(cell, options, environment, words) -> None:
    ours = {"RANK": "0", "SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "2"} | environment
    if "HOROVOD_RANK" not in environment:
        environment = {f"HOROSCALE_{name}": value for name, value in ours.items()}
    done = train(cell, *options, **environment)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", '{"dataset": "digits"}', "\xff"])
def test_a_config_that_is_none_is_told_without_a_traceback(cell: Path, text: str) -> None:
    (cell / "config.json").write_bytes(text.encode("latin-1"))
    done = train(cell)
    assert done.returncode == 2
    assert "config.json" in done.stderr and "Traceback" not in done.stderr


def test_a_start_by_hand_shows_nothing_of_an_earlier_start(cell: Path) -> None:
    """Traces of another world in the folder are not those of this start."""
    of = config(gpus=2)
    whole = record(of)
    told = {name: getattr(whole, name).model_dump(mode="json") for name in
            ("world", "data", "provenance")}  # fmt: skip
    (cell / "logs" / START_NAME).write_text(json.dumps(told))
    append_line(cell / EPOCHS_NAME, epoch(1, of).model_dump_json())
    rank_file(cell, 0, "error.json").write_text("{}")
    done = train(cell)
    assert done.returncode == 2 and "found a world of 1 rank" in done.stderr
    found = read_record(cell / RECORD_NAME)
    assert found.status == "failed" and found.world is None and found.epochs == ()
    assert "rank-0.log" not in found.error.what_to_do, "by hand there is no such file"


def test_a_supervised_rank_leaves_its_error_and_no_record(cell: Path) -> None:
    """Also without any environment: the container dropped it, and N ranks believe to be rank 0."""
    of = config(gpus=2)
    append_line(cell / EPOCHS_NAME, epoch(1, of).model_dump_json())
    done = train(cell, "--supervised")
    assert done.returncode == 2 and "--cleanenv" in done.stderr
    assert not (cell / RECORD_NAME).exists()
    assert read_epochs(cell), "what to forget is the supervisor's to say"
    (failure,) = read_failures(cell)
    assert "world of 1 rank" in failure.error.what and not failure.consequence


def test_a_stop_by_hand_leaves_a_record_that_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config(epochs=3).model_dump_json())
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / STOP_NAME).touch()  # of an earlier start: it must not stop this one
    done = train(tmp_path, "--data", str(tmp_path), "--stop-at", "1")
    assert done.returncode == EXIT_UNFINISHED, done.stderr
    found = read_record(tmp_path / RECORD_NAME)
    assert found.status == "timeout" and "1 of 3 epochs are done" in found.error.what
    assert "--resume" in found.error.what_to_do and len(found.epochs) == 1
    assert not (tmp_path / "logs" / STOP_NAME).exists()
    done = train(tmp_path, "--data", str(tmp_path), "--resume")
    assert done.returncode == 0, done.stderr
    found = read_record(tmp_path / RECORD_NAME)
    assert found.status == "completed"
    assert [(a.status, a.resumed_from_epoch) for a in found.attempts] == [
        ("timeout", 0), ("completed", 1),
    ]  # fmt: skip


def test_a_resumed_run_remembers_that_cores_were_shared(tmp_path: Path) -> None:
    """Seen: 12 epochs at half the speed counted in a throughput of a run alone."""
    (tmp_path / "config.json").write_text(config(epochs=2).model_dump_json())

    def marked(answers: str, *options: str) -> bool:
        code = (
            "import sys\nfrom train.__main__ import main\n"
            f"from train.distributed.cores import Claims\nanswers = iter({answers})\n"
            "Claims.shared = lambda _: next(answers, False)\nsys.exit(main(sys.argv[1:]))"
        )
        words = [str(tmp_path / "config.json"), "--data", str(tmp_path), *options]
        subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, check=False, timeout=600,
                       env=environment_of("ranks", os.environ))  # fmt: skip
        return read_record(tmp_path / RECORD_NAME).world.oversubscribed

    assert marked("[False, True]", "--stop-at", "1"), "from the first epoch on, not before"
    assert marked("[]", "--resume")
    assert not marked("[]", "--force")
    assert marked("[False, False, True]", "--force"), "in the last epoch"


def test_starts_by_hand_are_counted(cell: Path) -> None:
    for _ in range(2):
        assert train(cell).returncode == 2
    assert [a.number for a in read_record(cell / RECORD_NAME).attempts] == [1, 2]


def test_a_good_record_is_kept_and_its_traces_too(cell: Path) -> None:
    of = config(gpus=2)
    write_record(cell / RECORD_NAME, record(of))
    append_line(cell / EPOCHS_NAME, epoch(1, of).model_dump_json())
    done = train(cell)
    assert done.returncode == 0 and "is good already" in done.stdout
    assert (cell / EPOCHS_NAME).exists()
    assert read_record(cell / RECORD_NAME) == record(of)


@pytest.mark.parametrize(
    ("earlier", "options", "number"),
    [
        (None, {}, 1),
        ("failed", {}, 2),
        ("completed", {"force": True}, 1),  # a new story
        ("failed", {"attempt": 7}, 7),
    ],
)
def test_the_number_of_a_start(earlier, options, number) -> None:
    from train.__main__ import start_number

    error = None if earlier == "completed" else ERROR
    found = record(config(gpus=2), status=earlier, error=error) if earlier else None
    assert start_number(options.get("attempt"), found, ()) == number
    trained = (epoch(1, config()), epoch(2, config(), attempt=4))  # by one that left no record
    more = number if options else 5
    assert start_number(options.get("attempt"), found, trained) == more


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_record_of_another_config_is_neither_done_nor_replaced(cell: Path, status: str) -> None:
    other = config(gpus=2, epochs=5, seed=3)
    before = record(other, status=status)
    write_record(cell / RECORD_NAME, before)
    done = train(cell)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "is of another config: found epochs 5, seed 3; expected epochs 2, seed 0" in done.stderr
    assert "--force" in done.stderr and "--out" in done.stderr
    assert read_record(cell / RECORD_NAME) == before


def test_the_folder_of_another_cell_that_has_no_record_yet_is_left_alone(
    cell: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "config.json").write_text(config(gpus=2, epochs=5).model_dump_json())
    (there / "epochs.jsonl").write_text("of a run that was interrupted")
    done = train(cell, "--out", str(there))
    assert done.returncode == 2 and "config.json is of another config" in done.stderr
    assert (there / "epochs.jsonl").exists()


def test_forced_over_the_record_of_another_config_counts_from_one(cell: Path) -> None:
    write_record(cell / RECORD_NAME, record(config(gpus=2, seed=3), status="failed"))
    assert "found a world of 1 rank" in train(cell, "--force").stderr
    found = read_record(cell / RECORD_NAME)
    assert found.config == config(gpus=2) and [a.number for a in found.attempts] == [1]


def test_a_full_disk_when_the_record_of_a_failure_is_due_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("train.record.run.write_new", full)
    leave_record(config(), "failed", ERROR, tmp_path, record().started_at)
    said = capsys.readouterr().err
    assert "No space left" in said and "record.json" in said and said.count("\n") == 1


def test_ctrl_c_by_hand_leaves_a_cancelled_record(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config(epochs=5000).model_dump_json())
    process = subprocess.Popen(
        [sys.executable, "-m", "train", str(tmp_path / "config.json"), "--data", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env=environment_of("ranks", os.environ),
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 240
        while not read_epochs(tmp_path):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 130, said
    found = read_record(tmp_path / RECORD_NAME)
    assert found.status == "cancelled" and "Ctrl-C" in found.error.what
    assert found.epochs and found.world.size == 1
    assert found.missing["provenance.gpu"] == "no GPU on this machine"
    assert found.missing["world.interface"] == "a world of one talks to nobody"


def test_schemas_without_a_folder_is_a_wrong_request() -> None:
    with pytest.raises(SystemExit) as ended:
        export_schemas([])
    assert ended.value.code == 2


def test_schemas_into_a_place_that_cannot_be_written(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        export_schemas([str(tmp_path / "file" / "folder")])
    assert ended.value.code == 2
    assert f"cannot write to {tmp_path}/file/folder: Not a directory" in capsys.readouterr().err


def test_ended_records_of_this_start_only(tmp_path: Path) -> None:
    """--force by hand that fails keeps the good record."""
    good = record()
    write_record(tmp_path / RECORD_NAME, good)
    leave_record(good.config, "failed", ERROR, tmp_path, good.started_at)
    assert read_record(tmp_path / RECORD_NAME) == good
    assert ended_record(
        tmp_path, good.config, "failed", ERROR, started_at=good.started_at, ended_at=good.ended_at
    ).status == "failed"  # fmt: skip
