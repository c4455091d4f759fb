"""`python -m train` by hand: every wrong request in words, and what a start does in its folder."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.builders import config, epoch, record
from tests.train.run.test_check import NETWORK as NETWORKS
from tests.train.run.test_check import NO_WEIGHTS
from train.__main__ import main, start_number
from train.config.networks import MODELS
from train.program.environment import environment_of
from train.record.atomic import append_line
from train.record.cell_folder import (
    CHECKPOINT_NAME,
    EPOCHS_NAME,
    EXIT_UNFINISHED,
    STOP_NAME,
    WEIGHTS_NAME,
    rank_file,
    read_epochs,
    read_failures,
)
from train.record.lock import hold
from train.record.run import RECORD_NAME, RunError, read_record, write_record

ROOT = Path(__file__).resolve().parents[2]
ERROR = RunError(what="disk on fire", where="rank 0", what_to_do="water")


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    """A folder with a config that no world of one may train."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "config.json").write_text(config(gpus=2).model_dump_json())
    return tmp_path


def start(cell: Path, *options: str) -> int:
    """In this process, which has no environment of ranks: until the world is found too small."""
    return main([str(cell / "config.json"), *options])


def train(cell: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "train", str(cell / "config.json"), *options],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=600,
        env=environment_of("ranks", os.environ) | environment,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "changes", "words"),
    [
        (["--stall-s", "nan"], {}, "--stall-s"),
        ([], {"SIZE": "two"}, "HOROSCALE_SIZE is 'two'"),
        ([], {"CORES": "0,x"}, "HOROSCALE_CORES is '0,x'"),
        ([], {"CORES": "4000"}, "cores 4000"),
    ],
)
def test_a_wrong_request_is_refused_without_a_traceback(cell, options, changes, words) -> None:
    ours = {"RANK": "0", "SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "2"} | changes
    done = train(cell, *options, **{f"HOROSCALE_{name}": value for name, value in ours.items()})
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_place_that_cannot_be_written_and_a_config_that_is_none_are_refused(cell, capsys) -> None:
    assert start(cell, "--out", str(cell / "config.json" / "out")) == 2
    assert "config.json/out" in capsys.readouterr().err
    (cell / "config.json").write_bytes(b"\xff")
    assert start(cell) == 2
    assert "config.json" in capsys.readouterr().err


def test_a_cell_that_runs_is_left_alone(cell: Path, capsys) -> None:
    """Before, a second start by hand wrote into its files."""
    (cell / CHECKPOINT_NAME).touch()
    with hold(cell):
        assert start(cell) == 2
    assert f"process {os.getpid()} on" in (said := capsys.readouterr().err) and "--out" in said
    assert (cell / CHECKPOINT_NAME).exists()


def test_a_later_rank_by_hand_writes_only_when_it_met_the_first(cell: Path, monkeypatch) -> None:
    """The first may be refused. Before, it replaced the error and life signs of a live rank."""
    for name, value in {"RANK": "1", "SIZE": "3", "LOCAL_RANK": "1", "LOCAL_SIZE": "3"}.items():
        monkeypatch.setenv(f"HOROSCALE_{name}", value)
    live = [rank_file(cell, 1, kind) for kind in ("error.json", "beat")]
    for file in live:
        file.write_text("live")
    with hold(cell):
        assert start(cell) == 2
    assert [file.read_text() for file in live] == ["live"] * 2


@pytest.mark.parametrize("options", [[], ["--resume"]])
def test_a_start_by_hand_goes_on_from_earlier_ones_only_if_asked(cell: Path, options) -> None:
    """Before, the checkpoint stayed, and a later --resume went on from it."""
    names = (EPOCHS_NAME, CHECKPOINT_NAME, WEIGHTS_NAME)
    ours, others = ".checkpoint.npz.0123456789ab.tmp", (".editor.tmp", ".a.0123456789cd.tmp")
    for name in (*names, ours, others[0], f"logs/{STOP_NAME}"):
        (cell / name).touch()
    (cell / others[1]).mkdir()
    rank_file(cell, 1, "error.json").write_text("of an earlier start")
    assert start(cell, *options) == 2
    assert [(cell / name).exists() for name in names] == [bool(options)] * 3
    assert not any((cell / name).exists() for name in (ours, "logs/stop", "logs/rank-1.error.json"))
    assert all((cell / name).exists() for name in others), "of other programs"
    (failure,) = read_failures(cell)
    assert "found a world of 1 rank" in failure.error.what
    assert "rank-0.log" not in failure.error.what_to_do, "by hand there is no such file"


def test_a_supervised_rank_leaves_its_error_and_removes_nothing(cell: Path, capsys) -> None:
    """Also without any environment: the container dropped it, and N ranks believe to be rank 0."""
    append_line(cell / EPOCHS_NAME, epoch(1, config(gpus=2)).model_dump_json())
    with hold(cell):  # by the supervisor
        assert start(cell, "--supervised") == 2
    assert "--cleanenv" in capsys.readouterr().err
    assert read_epochs(cell), "what to forget is the supervisor's to say"
    (failure,) = read_failures(cell)
    assert "world of 1 rank" in failure.error.what and not failure.consequence
    assert "rank-0.log" in failure.error.what_to_do


NETWORK = NETWORKS % "x = L.BatchNormalization()(L.Dense(12, 'relu')(x))"


def test_a_run_that_was_stopped_goes_on_and_leaves_weights_for_plain_keras(tmp_path: Path) -> None:
    """Also in another folder than its sweep's, which has the copy of the network's file."""
    sha256 = hashlib.sha256(NETWORK.encode()).hexdigest()
    asked = config(epochs=3, model=f"net.py:build@{sha256}", keep_weights=True, batch_per_rank=32)
    sweep = tmp_path / "sweep"
    for folder in (cell := sweep / "cell", models := sweep / MODELS):
        folder.mkdir(parents=True)
    (cell / "config.json").write_text(asked.model_dump_json())
    (models / f"{sha256}.py").write_text(NETWORK)
    given = ("--data", str(tmp_path), "--out", str(tmp_path))
    done = train(cell, *given, "--stop-at", "1")
    assert done.returncode == EXIT_UNFINISHED, done.stderr
    assert "stopped after epoch 1 of 3" in done.stderr and "--resume goes on" in done.stderr
    assert len(read_epochs(tmp_path)) == 1 and not (tmp_path / RECORD_NAME).exists()
    earlier = record(asked, status="preempted")  # as a supervisor leaves it
    (tmp_path / RECORD_NAME).write_text(earlier.model_dump_json())
    done = train(cell, *given, "--resume")
    assert done.returncode == 0, done.stderr
    found = read_record(tmp_path / RECORD_NAME)
    assert found.status == "completed" and found.alarms == ()
    assert [(a.number, a.resumed_from_epoch) for a in found.attempts] == [(1, 0), (2, 1)]
    assert not (tmp_path / CHECKPOINT_NAME).exists()
    code = (
        f"import numpy as np\nfrom pathlib import Path\n{NETWORK}\n"
        "from train.data.registry import DatasetFiles\n"
        f"data = DatasetFiles('digits', Path({str(tmp_path)!r})).load()\n"
        f"net = build((8, 8, 1), 10); net.load_weights({str(tmp_path / WEIGHTS_NAME)!r})\n"
        "logits = net.predict(data.validation_x / 255, verbose=0)\n"
        "print(np.mean(logits.argmax(1) == data.validation_y))"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                         check=True)  # fmt: skip
    assert float(out.stdout) == pytest.approx(found.epochs[-1].validation_accuracy, abs=1e-6)


@pytest.mark.parametrize(
    ("keys", "words"),
    [({"keep_weights": True}, "keep_weights: .*name already exists"),
     ({"sharpness_images": 8}, "sharpness_images: .*ResizeNearestNeighborGrad")],
)  # fmt: skip
def test_what_would_fail_after_the_last_epoch_is_refused_before_the_first(
    tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    (file := tmp_path / "net.py").write_text(text := NETWORKS % NO_WEIGHTS)
    name = f"net.py:build@{hashlib.sha256(text.encode()).hexdigest()}"
    (tmp_path / "config.json").write_text(config(model=name, **keys).model_dump_json())
    done = train(tmp_path, "--data", str(tmp_path), "--model-file", str(file))
    assert done.returncode == 2 and re.search(words, done.stderr), done.stderr
    assert not read_epochs(tmp_path)


def test_tensorflow_is_not_loaded_before_the_cores_are_chosen() -> None:
    """Threads and log level are read when it is: `world.start` sets them first."""
    code = "import sys, train.run.session; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_good_record_is_kept_and_its_traces_too(cell: Path, capsys) -> None:
    of = config(gpus=2)
    write_record(cell / RECORD_NAME, record(of))
    append_line(cell / EPOCHS_NAME, epoch(1, of).model_dump_json())
    assert start(cell) == 0 and "is good already" in capsys.readouterr().out
    assert (cell / EPOCHS_NAME).exists()
    assert read_record(cell / RECORD_NAME) == record(of)


def test_the_number_of_a_start() -> None:
    failed = record(config(gpus=2), status="failed", error=ERROR)
    trained = (epoch(1, config()), epoch(2, config(), attempt=4))  # by one that left no record
    assert (start_number(None, ()), start_number(failed, ())) == (1, 2)
    assert start_number(None, trained) == start_number(failed, trained) == 5
    assert start_number(record(config(gpus=2)), trained) == 1, "a new story"


def test_a_record_of_another_config_is_neither_done_nor_replaced(cell: Path, capsys) -> None:
    before = record(config(gpus=2, epochs=5, seed=3))
    write_record(cell / RECORD_NAME, before)
    assert start(cell) == 2
    said = capsys.readouterr().err
    assert "is of another config: found epochs 5, seed 3; expected epochs 2, seed 0" in said
    assert "--force" in said and "--out" in said
    assert read_record(cell / RECORD_NAME) == before


def test_the_folder_of_another_cell_that_has_no_record_yet_is_left_alone(
    cell: Path, capsys
) -> None:
    there = cell / "there"
    there.mkdir()
    (there / "config.json").write_text(config(gpus=2, epochs=5).model_dump_json())
    (there / "epochs.jsonl").write_text("of a run that was interrupted")
    assert start(cell, "--out", str(there)) == 2
    assert "config.json is of another config" in capsys.readouterr().err
    assert (there / "epochs.jsonl").exists()


def test_ctrl_c_by_hand_names_the_way_to_go_on(tmp_path: Path) -> None:
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
    assert process.returncode == 130 and "--resume goes on from the last checkpoint" in said
    assert "interrupted by Ctrl-C" in rank_file(tmp_path, 0, "error.json").read_text()
