"""`python -m tests.chaos`: a sweep on a real Slurm that is disturbed all the time. See run.py."""

from __future__ import annotations

import sys

from tests.chaos.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
