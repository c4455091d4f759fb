"""When a start stops at an epoch's end, and that stops and resumes change nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import config, row
from tests.train.trainer.test_trainer import cell, curve, of
from tests.unreadable import stale
from train.config.optimizer import Adam
from train.record.cell_folder import EXIT_UNFINISHED, STOP_NAME, read_unfinished
from train.record.run import read_record


@pytest.mark.tf
def test_another_epoch_must_fit_with_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of at most 10 s; the end of a job moves by as long as the job was suspended."""
    from train.trainer.trainer import STOPS

    run = cell(of(Adam()), tmp_path)
    monkeypatch.setattr(time, "time", lambda: 1e9)
    end = 1e9 + 1.15 * 10 + 5 - 60
    run._longest_s, run._began, run._slept_before_s = 10, run.awake.now(), -60
    run.task = replace(run.task, stop_at=end + 0.1)
    assert run._why_stop() == 0
    run.task = replace(run.task, stop_at=end - 0.1)
    assert "no room for another epoch" in STOPS[run._why_stop()]
    run._longest_save_s = 1
    run.task = replace(run.task, stop_at=end + 0.1)
    assert run._why_stop() == 2, "two checkpoints must fit, too"


@pytest.mark.tf
def test_a_file_server_that_is_away_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from train.trainer.trainer import STOPS

    run = cell(of(Adam()), tmp_path)
    ask = tmp_path / "logs" / STOP_NAME
    ask.parent.mkdir(exist_ok=True)
    ask.touch()
    run._began = run._slept_before_s = 0.0
    with monkeypatch.context() as errors:
        stale(errors, ask)
        assert run._why_stop() == 0
    assert "was asked for" in STOPS[run._why_stop()]


RUN = """
import sys
from train.__main__ import main
code = main(sys.argv[2:])
assert code == int(sys.argv[1]), code
"""


@pytest.mark.ranks2
@pytest.mark.slow
def test_two_ranks_stopped_twice_and_resumed_are_the_run_never_stopped(
    start_ranks: Callable[..., list[str]], tmp_path: Path, data_root: Path
) -> None:
    """Exactly. Each rank has batch-norm statistics, dropout and gradient noise of its own."""
    technique = row(
        base_lr=0.01, base_batch=64, normalisation="batch_norm", optimizer=Adam(),
        noise_batch=64, clip_norm=1.0, warmup_epochs=1.5, warmup_from="zero",
    )  # fmt: skip
    given = config(gpus=2, epochs=3, model="cnn", technique=technique)
    for name in ("straight", "stopped"):
        (tmp_path / name / "logs").mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(given.model_dump_json())
    cell = tmp_path / "stopped"

    def train(name: str, code: int, *options: str) -> None:
        file = str(tmp_path / name / "config.json")
        start_ranks(["-c", RUN, str(code), file, "--data", str(data_root), *options], 2)

    train("straight", 0)
    train("stopped", EXIT_UNFINISHED, "--stop-at", "1", "--attempt", "1")
    assert re.match("stopped after epoch 1 of 3, .*time budget", read_unfinished(cell))
    assert not (cell / "record.json").exists() and not list(cell.glob("logs/*.error.json"))
    (cell / "logs" / "stop").touch()
    train("stopped", EXIT_UNFINISHED, "--resume", "--attempt", "2")
    assert re.match("stopped after epoch 2 .*asked for", read_unfinished(cell))
    (cell / "logs" / "stop").unlink()
    train("stopped", 0, "--resume", "--attempt", "3")
    straight, found = (read_record(tmp_path / n / "record.json") for n in ("straight", "stopped"))
    assert found.weights_sha256 == straight.weights_sha256
    assert curve(found.epochs) == curve(straight.epochs)
    assert [e.attempt for e in found.epochs] == [1, 2, 3]
