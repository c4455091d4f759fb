"""The distributed step: ranks are one big batch, and it is what model.fit does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from jobs.config.techniques import load_techniques
from train.program.environment import environment_of

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).parents[1] / "programs"
#: Of what two steps changed in the network's output: Adam turns round-off of gradients that are
#: nearly zero into steps of the usual size.
SHARE = 2e-2
#: Rows whose ranks draw noise of their own, which accumulated batches of one rank do not.
OWN_NOISE = {"gradient_noise"}
#: Rows that round on the way between ranks, so that more than float32's round-off is left.
ROUNDED = {"fp16_compression": 0.05, "bf16_compression": 0.1, "mixed_precision": 0.1}


@pytest.mark.ranks2
@pytest.mark.slow
@pytest.mark.timeout(3500)
def test_every_technique_is_one_model_on_two_ranks(
    start_ranks, tmp_path, data_root, invariant
) -> None:
    """Each row of techniques.yaml: ranks bit-identical; equal to the same batches accumulated by
    one rank, and to the whole batch where normalisation does not see how it is cut."""
    program = str(PROGRAMS / "every_technique.py")
    two = [
        json.loads(out)
        for out in start_ranks([program, tmp_path, "16", "1", data_root], 2, timeout_s=1800)
    ]
    with ThreadPoolExecutor(2) as pool:
        cuts = [
            [program, tmp_path, "16", "2", data_root],
            [program, tmp_path, "32", "1", data_root],
        ]
        accumulated, whole = pool.map(alone, cuts)
    for name, row in load_techniques().items():
        error = difference(two[0][name], two[1][name])
        invariant(f"T0 {name}", "2 steps: weights of 2 ranks are equal bit for bit", error, 0)
        apart = float(two[0][name]["hash"] != two[1][name]["hash"])
        invariant(f"T0 {name}", "20 steps: hashes of the weights of 2 ranks differ", apart, 0)
        assert change(two[0][name]) > 0.02, f"{name}: nothing was trained"
        bound = ROUNDED.get(name, SHARE)
        if name in OWN_NOISE or row["reduction"] == "adasum":
            continue
        if name in accumulated:
            error = share(two[0][name], accumulated[name])
            invariant(f"T14 {name}", "2 steps: 2 ranks x 16 = 1 rank x 2 x 16, share", error, bound)
        if name in whole:
            error = share(two[0][name], whole[name])
            invariant(f"T0 {name}", "2 steps: 2 ranks x 16 = 1 rank x 32, share", error, bound)


def change(one: dict[str, str]) -> float:
    """How far the logits of the probe moved, root mean square."""
    with np.load(one["file"]) as found:
        return float(np.sqrt(np.mean((found["after"] - found["before"]) ** 2)))


def share(one: dict[str, str], other: dict[str, str]) -> float:
    """Difference of the trained networks' outputs, over what training changed in them."""
    with np.load(one["file"]) as a, np.load(other["file"]) as b:
        assert np.allclose(a["before"], b["before"], atol=1e-4)
        gap = float(np.sqrt(np.mean((a["after"] - b["after"]) ** 2)))
    return gap / change(one)


@pytest.mark.ranks2
def test_step_equals_model_fit_with_distributed_optimizer(
    start_ranks, data_root, invariant
) -> None:
    """Weights and batch-norm statistics after 12 steps; the weights must have moved at all."""
    out = start_ranks([str(PROGRAMS / "fit_parity.py"), data_root], 2)
    for rank, text in enumerate(out):
        for name, found in json.loads(text).items():
            print(f"rank {rank} {name}: {found}")
            assert found["moved"] > 1e-2
            invariant(
                f"T0 {name}", "12 steps: own step = model.fit with Horovod's optimizer",
                found["difference"], 2e-6,
            )  # fmt: skip


def difference(one: dict[str, str], other: dict[str, str]) -> float:
    """Largest difference of a weight."""
    with np.load(one["file"]) as a, np.load(other["file"]) as b:
        assert a.files == b.files
        return max(float(np.abs(a[k] - b[k]).max()) for k in a.files)


def alone(command: list[object]) -> dict[str, dict[str, str]]:
    """The answer of a program that is a world of one."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env=environment_of("ranks", os.environ) | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
