"""The practice cluster: a real Slurm with four nodes on one Linux machine. See docs."""

import sys
from pathlib import Path

# what lies beside this package is found by its bare name, as the programs there find each other
if (folder := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.append(folder)
