"""Hold a sweep until the cluster's seams were looked at: the preflight job that its arrays need."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from jobs.config.site import Site
from jobs.messages import say
from jobs.slurm.arrays import Array, ArrayTask, NodeLayout
from jobs.slurm.client.squeue import JobState
from jobs.slurm.script import script_text
from jobs.slurm.submissions import (
    PREFLIGHT,
    ArrayNote,
    RunNote,
    SubmissionContext,
    adopt,
    array_folder,
    comment_of,
    read_notes,
)
from jobs.slurm.submit import submit
from train.config.frozen import Frozen


def largest(arrays: Sequence[Array]) -> NodeLayout:
    return max((array.shape for array in arrays), key=lambda shape: (shape.nodes, shape.size))


def is_whole(sending: SubmissionContext, task: PreflightTask) -> bool:
    """Whether a recent preflight answers this one."""
    now = datetime.now(UTC)
    if (good := recent(sending.folder, task.key, now)) is None:
        return False
    say(f"preflight: passed {(now - good.at).total_seconds() / 60:.0f} min ago (job {good.job})")
    return True


def in_queue(
    sending: SubmissionContext, task: PreflightTask, queue: Mapping[str, JobState]
) -> str | None:
    """An equal preflight that an earlier run submitted and that has not ended."""
    for note in reversed(read_notes(sending.folder)[0]):
        if note.kind == PREFLIGHT and note.key == task.key:
            job = adopt(note, queue).arrays[0].job_id
            if job is not None and job in queue and not queue[job].ended:
                say(f"preflight: job {job} of an earlier make sweep has not ended yet: used")
                return job
    return None


def preflight_task(sending: SubmissionContext, shape: NodeLayout, now: datetime) -> PreflightTask:
    """``now`` gives its folder a name of its own."""
    folder = sending.folder / PREFLIGHT_FOLDER / f"{now:%Y%m%dT%H%M%S%f}"
    task = PreflightTask(
        folder=str(folder),
        key="",
        site=sending.site,
        nodes=shape.nodes,
        ranks_per_node=shape.ranks_per_node,
        image=sending.image.path,
        root=str(sending.root),
        data=str(sending.data),
        store=str(sending.store),
        results=str(sending.folder),
        folders=sending.folders,
    )
    return task.model_copy(update={"key": key_of(task, sending.image.digest)})


def preflight_array(sending: SubmissionContext, shape: NodeLayout) -> Array:
    minutes = minutes_for(sending.site)
    return Array(shape, (ArrayTask((PREFLIGHT,), shape, minutes),), minutes, 1)


def submit_preflight(sending: SubmissionContext, task: PreflightTask) -> str:
    """Returns the job's id; raises SlurmError."""
    folder = Path(task.folder)
    folder.mkdir(parents=True)
    array = preflight_array(sending, NodeLayout(task.nodes, task.ranks_per_node))
    note = RunNote(
        run=folder.name,
        site=sending.site_name,
        job_name=sending.job_name,
        slurm_conf=sending.site.slurm_conf,
        submitted_at=datetime.now(UTC),
        arrays=(
            ArrayNote(
                units=((PREFLIGHT,),), nodes=task.nodes, ranks_per_node=task.ranks_per_node,
                minutes=array.minutes,
            ),
        ),
        kind=PREFLIGHT,
        cluster=sending.cluster,
        user=os.getuid(),
        key=task.key,
    )  # fmt: skip
    script = script_text(
        sending.site, array, array_folder(sending.folder, note.run, PREFLIGHT),
        name=sending.job_name, root=sending.root, comment=comment_of(note.run, PREFLIGHT),
    )  # fmt: skip
    note = submit(sending.folder, note, 0, [task.model_dump(mode="json")], script)
    return note.arrays[0].job_id or ""


PREFLIGHT_FOLDER = "preflight"
REPORT_NAME = "report.json"
#: A cluster that was whole this recently is not looked at again for the same request.
VALID = timedelta(hours=12)
#: srun and the container may take this much longer than the ranks.
START_S = 60


class Problem(Frozen):
    node: str
    check: str
    found: str
    expected: str
    fix: str

    def __str__(self) -> str:
        text = f"{self.node}: {self.check}: found {self.found}; expected {self.expected}"
        return f"{text}; {self.fix}" if self.fix else text


class PreflightReport(Frozen):
    """report.json"""

    key: str  # what was asked, so that an equal request need not ask again
    job: str
    at: AwareDatetime
    seconds: float
    nodes: tuple[str, ...]
    versions: dict[str, str]
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


class PreflightTask(Frozen):
    """What the job is told."""

    folder: str
    key: str
    site: Site
    nodes: int
    ranks_per_node: int
    image: str
    root: str
    data: str
    store: str
    results: str
    folders: tuple[str, ...] = ()  # data sets that are folders of images


def minutes_for(site: Site) -> int:
    """Time limit of the preflight job."""
    return math.ceil((site.preflight_s + START_S) / 60) + 1


def key_of(task: PreflightTask, digest: str | None) -> str:
    """Equal for requests that an earlier good preflight answers."""
    asked = task.model_dump_json(exclude={"folder", "key", "results"})
    return hashlib.sha256(f"{asked}|{digest}".encode()).hexdigest()[:16]


def read_preflight(folder: Path) -> PreflightReport | None:
    try:
        text = (folder / REPORT_NAME).read_text(encoding="utf-8")
        return PreflightReport.model_validate_json(text)
    except (OSError, ValueError, ValidationError):
        return None


def recent(sweep: Path, key: str, now: datetime) -> PreflightReport | None:
    """A good report of an equal request that is young enough."""
    for folder in sorted((sweep / PREFLIGHT_FOLDER).glob("*"), reverse=True):
        report = read_preflight(folder)
        if report and report.ok and report.key == key and now - report.at < VALID:
            return report
    return None


def report_of(sweep: Path, job: str) -> PreflightReport | None:
    """What the preflight job with this id found; None where it left no report."""
    reports = map(read_preflight, sorted((sweep / PREFLIGHT_FOLDER).glob("*"), reverse=True))
    return next((report for report in reports if report and report.job == job), None)
