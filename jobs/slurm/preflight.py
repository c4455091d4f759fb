"""The preflight: a short job that goes first and checks the seams between Slurm, the container and
the ranks. Cells depend on its good end.

It takes at most two nodes, which show all that is between nodes: one preflight serves every cell of
a sweep, and the small ones wait no longer for it because others of the sweep are large. A good one
holds for a day, for all sweeps in one folder of results that ask for the same: site, image, code,
and places of data. One that still waits or runs serves them, too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from jobs.config.site import Site
from jobs.messages import say
from jobs.slurm.arrays import Array, NodeLayout
from jobs.slurm.client.squeue import JobState
from jobs.slurm.job.task import (
    PREFLIGHT,
    PreflightReport,
    PreflightTask,
    minutes_for,
    preflights_beside,
    read_preflight,
)
from jobs.slurm.submissions import (
    NOTES_NAME,
    RunNote,
    SubmissionContext,
    adopt,
    is_anothers,
)
from jobs.slurm.submit import submit_job
from train.record.atomic import forget_absent

MOST_NODES = 2
VALID = timedelta(hours=24)
#: A report that network file systems do not show is waited for so long: they keep names and
#: attributes for up to a minute by default.
UNSEEN_S = 120.0


def preflight_shape(arrays: Sequence[Array]) -> NodeLayout:
    shape = max((array.shape for array in arrays), key=lambda shape: (shape.nodes, shape.size))
    return NodeLayout(min(shape.nodes, MOST_NODES), shape.ranks_per_node)


def preflight_array(site: Site, shape: NodeLayout) -> Array:
    return Array(units=((PREFLIGHT,),), minutes=minutes_for(site), **vars(shape))


def key_of(context: SubmissionContext) -> str:
    """Equal for sweeps that one good preflight serves."""
    asked = (
        context.site.model_dump_json(exclude={"requeue"}),  # which BUDGET turns off
        (context.cluster, context.image.path, context.image.digest),
        context.root.name,  # a copy of the code has its digest for a name
        (str(context.data), str(context.store), *context.folders),
    )
    return hashlib.sha256(repr(asked).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def submit_preflight(context: SubmissionContext, shape: NodeLayout) -> tuple[str, Path]:
    """Returns the job's id and the folder of its report; raises SlurmError."""
    folder = context.folder.parent / PREFLIGHT / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    folder.mkdir(parents=True)
    task = PreflightTask(
        folder=str(folder),
        key=key_of(context),
        site=context.site,
        image=context.image.path,
        root=str(context.root),
        data=str(context.data),
        store=str(context.store),
        folders=context.folders,
        **vars(shape),
    )
    array = preflight_array(context.site, shape)
    return submit_job(context, PREFLIGHT, folder.name, array, [task], key=task.key), folder


def earlier_preflight(
    context: SubmissionContext, shape: NodeLayout, queue: Mapping[str, JobState]
) -> tuple[str, Path] | None:
    """Job and folder of a preflight that serves this sweep, whichever sweep submitted it: a good
    one of the last day, or one that waits or runs."""
    key = key_of(context)
    notes = {file.stem: file for file in context.folder.parent.glob(f"*/{NOTES_NAME}/*.json")}
    for folder in preflights_beside(context.folder):
        with suppress(KeyError, OSError, ValidationError):
            note = adopt(RunNote.model_validate_json(notes[folder.name].read_bytes()), queue)
            (asked,) = note.arrays
            large = asked.nodes >= shape.nodes and asked.ranks_per_node >= shape.ranks_per_node
            if not large or note.key != key:
                continue
            job = asked.job_id or ""
            if news := _news(read_preflight(folder), note.run, queue.get(job)):
                say(f"preflight: job {job} {news}")
                return job, folder
    return None


def _news(report: PreflightReport | None, run: str, state: JobState | None) -> str:
    """What a preflight that serves came to; '' for one that does not."""
    if report is None:
        alive = state and not state.ended and not is_anothers(state, run, PREFLIGHT)
        return "of an earlier make sweep has not ended yet: used" if alive else ""
    age = datetime.now(UTC) - report.at
    return f"passed {age.total_seconds() / 60:.0f} min ago" if report.ok and age < VALID else ""


@dataclass
class Gate:
    """Whether cells may be submitted: after a good preflight, or depending on one."""

    context: SubmissionContext
    shut: bool  # no good preflight is known yet
    job: str | None = None  # the preflight that cells depend on
    fresh: bool = False  # which was submitted a moment ago
    failure: str = ""  # why no cell is submitted any more
    _folder: Path = Path()
    _unseen_since: float | None = None

    def opens(self, queue: Mapping[str, JobState], arrays: Sequence[Array]) -> bool:
        """Whether these may be submitted now; where there is a ``job``, they have to depend on it.
        Submits a preflight where none serves them.

        Raises:
            SlurmError: a preflight could not be submitted.
        """
        if self.shut and self.job is None:
            shape = preflight_shape(arrays)
            earlier = earlier_preflight(self.context, shape, queue)
            self.fresh = earlier is None
            self.job, self._folder = earlier or submit_preflight(self.context, shape)
            if self.fresh:
                say(f"preflight: job {self.job} on {shape} goes first; the cells start when it has "
                    "passed")  # fmt: skip
        return not self.shut or self.fresh or self._passed_or_alive(queue.get(self.job or ""))

    def _passed_or_alive(self, state: JobState | None) -> bool:
        """Its report decides; one that is not seen may be seen later."""
        forget_absent(self._folder)
        report = read_preflight(self._folder)
        if report is not None and report.ok:
            self.shut, self.job = False, None
        elif state is not None and not state.ended:
            self._unseen_since = None
        else:
            self._unseen_since = self._unseen_since or time.monotonic()
            if report is not None or time.monotonic() - self._unseen_since > UNSEEN_S:
                came = "left no report" if report is None else "failed"
                self.failure = f"the preflight, job {self.job}, {came}"
            return False
        return True
