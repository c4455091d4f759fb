"""`python -m train` by hand: every wrong request in words."""

from __future__ import annotations

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
    CHECKPOINT_NAME,
    EPOCHS_NAME,
    EXIT_UNFINISHED,
    START_NAME,
    STOP_NAME,
    rank_file,
    read_epochs,
    read_failures,
)
from train.record.run import RECORD_NAME, RunError, read_record, write_record
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
    (cell / "logs" / START_NAME).write_text("{}")
    append_line(cell / EPOCHS_NAME, epoch(1, config(gpus=2)).model_dump_json())
    rank_file(cell, 0, "error.json").write_text("{}")
    done = train(cell)
    assert done.returncode == 2 and "found a world of 1 rank" in done.stderr
    (failure,) = read_failures(cell)
    assert "rank-0.log" not in failure.error.what_to_do, "by hand there is no such file"
    left = (RECORD_NAME, EPOCHS_NAME, f"logs/{START_NAME}")
    assert not any((cell / name).exists() for name in left)


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


def test_a_stop_by_hand_goes_on_where_it_stopped(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config(epochs=3).model_dump_json())
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / STOP_NAME).touch()  # of an earlier start: it must not stop this one
    done = train(tmp_path, "--data", str(tmp_path), "--stop-at", "1")
    assert done.returncode == EXIT_UNFINISHED, done.stderr
    assert "1 of 3 epochs are done" in done.stderr and "--resume goes on" in done.stderr
    assert not (tmp_path / RECORD_NAME).exists() and len(read_epochs(tmp_path)) == 1
    assert not (tmp_path / "logs" / STOP_NAME).exists()
    done = train(tmp_path, "--data", str(tmp_path), "--resume")
    assert done.returncode == 0, done.stderr
    found = read_record(tmp_path / RECORD_NAME)
    assert found.status == "completed"
    assert [(a.number, a.resumed_from_epoch) for a in found.attempts] == [(2, 1)]


def test_a_resumed_run_remembers_that_cores_were_shared(tmp_path: Path) -> None:
    """Seen: 12 epochs at half the speed counted in a throughput of a run alone."""
    (tmp_path / "config.json").write_text(config(epochs=2).model_dump_json())

    def run(answers: str, *options: str) -> None:
        code = (
            "import sys\nfrom train.__main__ import main\n"
            f"from train.distributed.cores import Claims\nanswers = iter({answers})\n"
            "Claims.shared = lambda _: next(answers, False)\nsys.exit(main(sys.argv[1:]))"
        )
        words = [str(tmp_path / "config.json"), "--data", str(tmp_path), *options]
        subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, check=False, timeout=600,
                       env=environment_of("ranks", os.environ))  # fmt: skip

    def marked(answers: str, *options: str) -> bool:
        run(answers, *options)
        return read_record(tmp_path / RECORD_NAME).world.oversubscribed

    run("[False, True]", "--stop-at", "1")
    assert marked("[]", "--resume"), "from the first epoch on, not before"
    assert not marked("[]", "--force")
    assert marked("[False, False, True]", "--force"), "in the last epoch"


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


def test_forced_over_the_record_of_another_config_it_starts(cell: Path) -> None:
    write_record(cell / RECORD_NAME, record(config(gpus=2, seed=3), status="failed"))
    assert "found a world of 1 rank" in train(cell, "--force").stderr
    assert read_record(cell / RECORD_NAME).config.seed == 3, "replaced by a run that ended well"


def test_ctrl_c_by_hand_keeps_the_checkpoint_and_leaves_no_record(tmp_path: Path) -> None:
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
    assert "--resume goes on" in said and (tmp_path / CHECKPOINT_NAME).exists()
    (failure,) = read_failures(tmp_path)
    assert "Ctrl-C" in failure.error.what and not (tmp_path / RECORD_NAME).exists()


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
