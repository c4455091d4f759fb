"""The order of a start: cores before TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_tensorflow_is_not_loaded_before_the_cores_are_chosen() -> None:
    """Threads and log level are read when it is: `world.start` sets them first."""
    code = "import sys, train.run.session; print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "False"
