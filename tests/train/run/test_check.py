"""`python -m train check`: what it finds of a network, and what it refuses."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pretend_hosts import ended
from tests.sweeps import ROOT, executable, ran, ranks_here
from train.__main__ import main

SMALL = ROOT / "jobs" / "sweeps" / "networks" / "small.py"
#: %s: layers between the image and the logits.
NETWORK = """
from tensorflow import keras
L = keras.layers

def build(input_shape, classes):
    images = keras.Input(input_shape)
    x = L.Flatten()(images)
    %s
    return keras.Model(images, L.Dense(classes)(x))
"""
REGULARISED = "x = L.Dropout(0.5)(L.Dense(16, 'relu', kernel_regularizer='l2')(x))"
#: Whose layer has an attribute of Dropout's, which is a number of repeats.
REPEATS = f"""
    class Repeat(L.Layer):
        rate = 2
        def call(self, x):
            return keras.backend.repeat_elements(x, self.rate, 1)
    x = Repeat()(x)
    {REGULARISED}"""
#: HDF5 cannot hold its weights, and its upsampling has no second derivative.
NO_WEIGHTS = (
    "images = keras.Input(input_shape); x = L.GaussianNoise(0.1)(images); "
    "twins = [keras.Sequential([L.Conv2D(2, 3, name='same')]) for _ in range(2)]; "
    "x = L.Flatten()(L.UpSampling2D()(keras.Sequential(twins)(x)))"
)


def check(*words: object) -> subprocess.CompletedProcess[str]:
    return ran([sys.executable, "-m", "train", "check", *map(str, words)], cwd=ROOT, timeout=600)


def network(folder: Path, layers: str) -> str:
    file = folder / "mine.py"
    file.write_text(NETWORK % layers)
    return f"{file}:build"


def table(printed: str) -> dict[str, tuple[str, str]]:
    rows = [line.split(maxsplit=2) for line in printed.splitlines()]
    return {what: (verdict, text) for verdict, what, text in rows}


@pytest.mark.ranks2
def test_the_example_network_on_two_ranks() -> None:
    done = check(f"{SMALL}:build", "--input", "8x8x1")
    assert done.returncode == 0, done.stdout + done.stderr
    found = table(done.stdout)
    assert found["parameters"][1].startswith("94,634, of which 94,186")
    assert found["ranks"] == ("passed", "equal to the bit after 6 steps")
    assert found["momentum"][1].startswith("0.9: ")
    assert found["resume"] == ("passed", "from a checkpoint leads to the same weights to the bit")
    assert "BatchNormalization takes statistics of each batch" in found["accumulation"][1]
    where = r"measured on this machine with \d+ cores? per rank \(CPU\)"
    assert re.fullmatch(rf"\S+ s, of 16 images on each of 2 ranks, {where}", found["step"][1])
    assert 0.1 < float(found["memory"][1].split()[0]) < 10
    fit = ("ghosts", "synchronised", "muon", "keep_weights", "sharpness")
    assert [found[name][1] for name in fit] == ["fits"] * 5


@pytest.mark.ranks2
@pytest.mark.slow
def test_without_batch_norm_accumulated_batches_are_one_large_batch(tmp_path: Path) -> None:
    done = check(network(tmp_path, REPEATS), "--input", "8x8x1", "--ranks", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    found = table(done.stdout)
    assert found["accumulation"][0] == "passed", "its dropout draws other masks, and is left out"
    assert found["ranks"] == ("-", "not compared, since there is one: --ranks 2 starts two")
    assert found["ghosts"][1].startswith("does not fit: ")


@pytest.mark.ranks2
def test_networks_that_are_not_compared_keep_no_weights_or_have_no_sharpness(
    tmp_path: Path,
) -> None:
    done = check(network(tmp_path, NO_WEIGHTS), "--input", "8x8x1", "--ranks", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    found = table(done.stdout)
    assert found["accumulation"][0] == "-" and "random layers" in found["accumulation"][1]
    assert "name already exists" in found["keep_weights"][1]
    assert "ResizeNearestNeighborGrad" in found["sharpness"][1]


@pytest.mark.ranks2
def test_what_fails_is_a_finding(tmp_path: Path) -> None:
    mixes = network(tmp_path, "x = L.Lambda(lambda x: x - keras.backend.mean(x, 0))(x)")
    forgets = (
        "import sys; from train.__main__ import main; from train.trainer import checkpoint; "
        "checkpoint.restore = lambda *_: None; sys.exit(main(sys.argv[1:]))"
    )
    command = ["-c", forgets, "check", mixes, "--input", "8x8x1"]
    ((code, out, errors),) = ended(ranks_here(tmp_path / "ranks", command, ((0,),)), 600)
    assert code == 1, out + errors
    found = table(out)
    assert found["accumulation"][0] == "FAILED" and "mixes the images" in found["accumulation"][1]
    assert found["resume"] == ("FAILED", "from a checkpoint leads to others")


@pytest.mark.ranks2
@pytest.mark.slow
def test_a_network_that_is_refused_is_one_sentence(tmp_path: Path) -> None:
    done = check(network(tmp_path, "x = L.Dense(3)(x); classes = 7"))
    assert done.returncode == 2 and done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if "another run" not in line]
    assert line.startswith("train check: mine.py: ") and "(None, 7)" in line


@pytest.mark.parametrize(("end", "code", "seen"), [("kill -9 $$", 1, -9), ("exit 2", 2, 2)])
def test_a_rank_that_ends_before_the_meeting_ends_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, end: str, code: int, seen: int
) -> None:
    """Seen: they waited an hour for it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("train.run.check.GRACE_S", 0.2)
    scripted = f"mktemp -d; [ $HOROSCALE_RANK = 0 ] && exec sleep 20; {end}"
    monkeypatch.setattr("sys.executable", executable(tmp_path / "rank", f"#!/bin/sh\n{scripted}"))
    began = time.monotonic()
    assert main(["check", "keras.applications.VGG16"]) == code
    assert time.monotonic() - began < 15
    error = f"rank 1 ended with exit code {seen} and left no error"
    assert capsys.readouterr().out == f"FAILED  training      {error}\n"
    assert [file.name for file in tmp_path.iterdir()] == ["rank"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nowhere.py:build"], "nowhere.py: no such file; expected FILE.py:FUNCTION"),
        (["MobileNetV2"], "unknown model 'MobileNetV2'"),
        (["keras.applications.VGG16", "--input", "32"], "--input: found 32, expected three sizes"),
        (["keras.applications.VGG16", "--input", "0x32x3"], "--input: found 0x32x3"),
    ],
)
def test_wrong_requests(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words]) == 2
    assert reason in capsys.readouterr().err
