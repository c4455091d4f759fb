"""A sweep on the practice cluster that a test may disturb; what it broke is healed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.slurm.sweeping import Sweeping, in_folder
from tests.practice import Practice


@pytest.fixture
def sweeping(cluster: Practice, shared_folder: Path) -> Iterator[Sweeping]:
    with in_folder(cluster, shared_folder) as made:
        yield made
