"""The preflight: a short job that goes first and checks the seams between Slurm, the container and
the ranks. Cells depend on its good end.

It takes at most two nodes, which show all that is between nodes, and no more than the sweep's
largest cell: a sweep on single nodes neither waits for two of them, nor is it held by a fault
between them that it would never meet. One preflight serves every cell of a sweep, and the small
ones wait no longer for it because others are large. A good one holds for a day, for all sweeps in
one folder of results that ask for the same: site, image, code, and places of data. One
that still waits or runs serves the sweep that submitted it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from jobs.config.site import NodeLayout
from jobs.messages import say
from jobs.slurm.client.squeue import JobState
from jobs.slurm.job.task import PREFLIGHT, SubmissionContext, preflights_beside, read_preflight
from jobs.slurm.submissions import Array, RunNote, is_anothers
from train.record.atomic import forget_absent

MOST_NODES = 2
VALID = timedelta(hours=24)
#: A report that network file systems do not show is waited for so long: they keep names and
#: attributes for up to a minute by default.
UNSEEN_S = 120.0


def preflight_layout(arrays: Sequence[Array]) -> NodeLayout:
    largest = max((array.shape for array in arrays), key=lambda shape: (shape.nodes, shape.size))
    return NodeLayout(min(largest.nodes, MOST_NODES), largest.ranks_per_node)


@dataclass
class Preflight:
    """A preflight job that cells wait for, whichever sweep submitted it."""

    job: str
    folder: Path  # of its report
    _unseen_since: float | None = None

    def outcome(
        self, queue: Mapping[str, JobState]
    ) -> Literal["passed", "alive", "unseen", "failed", "left no report"]:
        """Its report decides; one that is not seen may be seen later."""
        forget_absent(self.folder)
        report, state = read_preflight(self.folder), queue.get(self.job)
        if report is not None and report.ok:
            return "passed"
        if state is not None and not state.ended:
            self._unseen_since = None
            return "alive"
        if report is not None:
            return "failed"
        self._unseen_since = self._unseen_since or time.monotonic()
        gone = time.monotonic() - self._unseen_since > UNSEEN_S
        return "left no report" if gone else "unseen"


def earlier_preflight(
    context: SubmissionContext,
    layout: NodeLayout,
    notes: Iterable[RunNote],
    queue: Mapping[str, JobState],
) -> Preflight | None:
    """One that serves this sweep: a good one of the last day, or one of its own that waits or runs.

    ``notes``: of the sweep.
    """
    key = context.preflight_key

    def serves(run: str, nodes: int, ranks_per_node: int) -> bool:
        large = nodes >= layout.nodes and ranks_per_node >= layout.ranks_per_node
        return large and run.endswith(f"-{key}")

    for folder in preflights_beside(context.folder):
        found = read_preflight(folder)
        good = found and found.ok and serves(folder.name, len(found.nodes), found.ranks_per_node)
        if found and good and (age := datetime.now(UTC) - found.at) < VALID:
            say(f"preflight: job {found.job} passed {age.total_seconds() / 60:.0f} min ago")
            return Preflight(found.job, folder)
    for note in notes:
        asked = note.arrays[0]
        job = queue.get(asked.job_id or "")
        alive = job and not job.ended and not is_anothers(job, note.run, PREFLIGHT)
        folder = context.folder.parent / PREFLIGHT / note.run
        failed = read_preflight(folder) is not None  # one that passed was found above
        fits = serves(note.run, asked.nodes, asked.ranks_per_node)
        if job and alive and fits and not failed:
            say(f"preflight: job {job.job} of an earlier make sweep has not ended yet: used")
            return Preflight(job.job, folder)
    return None
