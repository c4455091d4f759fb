"""Run as `python3 containers/practice COMMAND`, from anywhere, on a bare Python."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from locks import run

from practice.command import main

if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
