"""The distributed step: ranks are one big batch, and it is what model.fit does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.ranks2
def test_two_ranks_of_b_equal_one_process_of_2b(start_ranks, tmp_path, data_root):
    """T0: for every optimizer in use, to 1e-5; and the ranks end bit-identical."""
    program = str(PROGRAMS / "equal_batches.py")
    two = [json.loads(out) for out in start_ranks([program, tmp_path, "16", data_root], 2)]
    alone = subprocess.run(
        [sys.executable, program, tmp_path, "32", data_root],
        capture_output=True, text=True, check=True, cwd=ROOT, env=_environment(),
    )  # fmt: skip
    one = json.loads(alone.stdout)
    assert set(one) == set(two[0]) and len(one) >= 6
    for name in one:
        assert two[0][name]["hash"] == two[1][name]["hash"], f"{name}: ranks differ"
        with np.load(one[name]["file"]) as a, np.load(two[0][name]["file"]) as b:
            error = max(float(np.abs(a[k] - b[k]).max()) for k in a.files)
            print(f"{name}: largest difference {error:.2e}")
            assert error < 1e-5, f"{name}: 2 x 16 differs from 1 x 32 by {error:.2e}"


@pytest.mark.ranks2
def test_step_equals_model_fit_with_distributed_optimizer(start_ranks, data_root):
    """Weights and batch-norm statistics after 12 steps; the weights must have moved at all."""
    out = start_ranks([str(PROGRAMS / "fit_parity.py"), data_root], 2)
    for rank, text in enumerate(out):
        for name, found in json.loads(text).items():
            print(f"rank {rank} {name}: {found}")
            assert found["moved"] > 1e-2
            assert found["difference"] < 2e-6


def _environment() -> dict[str, str]:
    import os

    from jobs.launch import clean_environment

    return clean_environment(os.environ) | {"PYTHONPATH": str(ROOT)}
