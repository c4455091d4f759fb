"""GPU-hours: the bound that Slurm may charge, and the estimate; time limits by earlier cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.state import CellState
from jobs.config.site import NamedSite, Site
from jobs.plan import cost
from jobs.plan.cost import array_lines, time_limits
from jobs.plan.estimate import Rate, rate_key
from jobs.plan.rows import plans_of
from jobs.slurm.submissions import Array
from tests.builders import config

SITE = Site(ranks_per_node=8, time_min=30)
WHOLE = SITE.model_copy(update={"exclusive": True})


def array(nodes: int, ranks: int, jobs: int, minutes: int = 30) -> Array:
    cells = tuple(f"c{nodes * ranks}-{job}" for job in range(jobs))
    return Array(cells=cells, nodes=nodes, ranks_per_node=ranks, minutes=minutes, parallel=64)


#: 4 x 1 GPU and 6 x 16 GPUs for half an hour: 2 and 48 GPU-hours.
ARRAYS = [array(1, 1, 4), array(2, 8, 6)]
SECONDS = {cell: 600.0 for one in ARRAYS for cell in one.cells}


def text(arrays: list[Array], seconds: Any = None, site: Site = SITE) -> str:
    named = NamedSite("mine", site, Path("jobs/sites/mine.yaml"))
    return "\n".join(array_lines(arrays, seconds or {}, named, len(arrays)))


def test_arrays_and_what_they_cost_are_shown() -> None:
    shown = text(ARRAYS)
    assert [line.split() for line in shown.splitlines()[:4]] == [
        ["ranks", "time", "at", "GPU-hours"],
        ["array", "nodes", "/node", "jobs", "limit", "once", "at", "most"],
        ["1", "1", "1", "4", "30:00", "4", "2"],
        ["2", "2", "8", "6", "30:00", "6", "48"],
    ]
    assert "sbatch calls: 2; jobs: 10, one per cell" in shown
    assert "GPU-hours: at most 50 (every job once until its time limit); never run here" in shown
    some = text(ARRAYS, {"c1-0": 1800.0, "c16-0": 1800.0})
    assert "about 8.5 going by earlier cells, 8 cells left out" in some
    assert text(ARRAYS, SECONDS).endswith("about 16.7 going by earlier cells")
    site = SITE.model_copy(update={"submit_limit": 5})
    assert "queue: 5 jobs fit now; the other 5 are submitted" in text(ARRAYS, site=site)
    assert text([]).endswith("nothing to submit")


def test_whole_nodes_are_charged_where_only_whole_nodes_are_given() -> None:
    assert "at most 3 (every job" in text([array(2, 3, 1)])
    assert "at most 8 (whole nodes, used or not, every job" in text([array(2, 3, 1)], site=WHOLE)


#: 1,437 images of an epoch of the digits at 1 a second: 1,408 of them in whole batches of 2 x 64.
SLOW = Rate(images_per_s=1.0, fixed_s=60.0, eval_s=2.0, cells=3)
OPEN = Site(ranks_per_node=8, max_time_min=240, signal_s=30)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[int]]:
    def of(site: Site = OPEN, rate: Rate = SLOW, status: str = "new", **changes: Any) -> list[int]:
        key = rate_key(config(gpus=2, batch_per_rank=64))
        monkeypatch.setattr(cost, "known_rates", lambda *_: {key: rate})
        one = config(**{"gpus": 2, "batch_per_rank": 64, "epochs": 1, **changes})
        plans = plans_of([one], {("digits", None): 1437})
        todo = [CellState(one, tmp_path / one.cell_id(), status)]
        named = NamedSite("mine", site, Path("mine.yaml"))
        return list(time_limits(named, tmp_path, plans, todo, {}).values())

    return of


def test_a_time_limit_by_three_earlier_cells_like_it(limits) -> None:
    """1.5 x (60 + 1408 + 2) s and the 30 s of Slurm's warning: 38 minutes."""
    assert limits() == limits(status="lost") == [38]
    assert limits(rate=SLOW._replace(images_per_s=1e6)) == [10], "at least 10 minutes"
    assert limits(epochs=10) == [240], "at most the site's"
    assert limits(rate=SLOW._replace(cells=2)) == [], "two are too few"
    assert limits(gpus=4) == limits(model="resnet_mini") == limits(batch_per_rank=8) == []
    assert limits(Site(ranks_per_node=8, time_min=30)) == [], "the site file wins"
    assert limits(status="timeout") == [], "its time was over once: the site's"
