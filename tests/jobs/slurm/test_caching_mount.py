"""A sweep whose results the login node sees late, as over NFS: jobs write behind a mount that keeps
names and attributes for half a minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.caching import seen_late
from tests.jobs.slurm.sweeping import LONG, Sweeping, in_folder
from tests.practice import Practice

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1200)]


@pytest.fixture
def sweeping(cluster: Practice, shared_folder: Path) -> Iterator[Sweeping]:
    """The nodes have mounts of their own, and so see the folder below ours."""
    sweep = {**LONG, "epochs": 3, "matrix": {"seeds": 2}}
    with (
        in_folder(cluster, shared_folder, sweep=sweep) as made,
        seen_late(made.results, made.results),
    ):
        yield made
        made.close()
        cluster.heal()  # while the folder is still mounted: nobody must use it at its end


def test_good_records_that_are_seen_late_stay(sweeping: Sweeping) -> None:
    out = sweeping.succeeds(sweeping.start("--no-preflight"))
    # what the nodes see is what is there
    find = ("find", str(sweeping.results), "-name", "record.json")
    files = sweeping.practice.inside("node1", *find).stdout.split()
    assert len(files) == 2, out
    for file in files:
        text = sweeping.practice.inside("node1", "cat", file).stdout
        assert '"status": "completed"' in text, text
        assert text.count('"resumed_from_epoch"') == 1, "one attempt"
    out = sweeping.succeeds(sweeping.start("--no-preflight"))
    assert "(2 completed): nothing to train" in out, out
