"""What the jobs of a submission share, and what each of them is to do: plain JSON values, which the
job reads on its first node.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from pydantic import AwareDatetime

from jobs.cell.container import NO_IMAGE, FileMark, Image
from jobs.cell.needs import TMP, Need, basic_needs, usable_tmpdir
from jobs.config.site import NodeLayout, Site
from train.config.frozen import Frozen


class Task(Frozen):
    """What every program of a job gets."""

    site: Site
    nodes: int
    ranks_per_node: int
    image: str  # path of the SIF file, or "none"
    image_digest: str | None = None  # when it was submitted
    image_mark: FileMark | None = None  # of the file that had it
    root: str  # the code that runs
    needs: tuple[Need, ...] = ()  # of the ranks: their folders and files

    def on_node(self, environment: Mapping[str, str]) -> Self:
        """The job as its first node has it: where the site names no scratch, TMPDIR is it, and in
        the containers of several nodes /tmp, since other nodes may lack the first one's TMPDIR.
        What Slurm's variables ask for by task, srun reads, too."""
        scratch = self.site.scratch or usable_tmpdir(environment.get("TMPDIR"))
        if scratch and self.site.scratch is None and self.nodes > 1:
            scratch = TMP if self.image != NO_IMAGE else None
        asked = {n: text for n, text in environment.items() if re.match("SLURM_.*_PER_", n)}
        told = {"scratch": scratch, "environment": asked | self.site.environment}
        return self.model_copy(update={"site": self.site.model_copy(update=told)})

    @property
    def every_need(self) -> tuple[Need, ...]:
        return *basic_needs(self.root, self.image, self.site.scratch), *self.needs

    @property
    def size(self) -> int:
        return self.nodes * self.ranks_per_node


class JobTask(Task):
    """Run a cell; the same text is read again when Slurm requeues the job."""

    data: str
    store: str
    cell: str  # its folder
    forced: bool = False  # whether its older record is put aside first
    asked_at: AwareDatetime  # a record older than this is "older"
    stall_s: float
    minutes: int  # the job's time limit
    git_commit: str | None = None
    git_dirty: bool | None = None


class PreflightTask(Task):
    folder: str  # of its report
    sweep: str | None = None  # folder that the make sweep holds while it lives


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """What all jobs of one folder of results share."""

    name: str  # of the sweep
    folder: Path
    site_name: str
    site: Site
    root: Path  # the code that the jobs run
    image: Image
    needs: tuple[Need, ...]  # of all ranks
    cluster: str | None = None  # its name, where it says

    def task(self, layout: NodeLayout) -> dict[str, Any]:
        """The fields of a :class:`Task` on these nodes."""
        return {
            "site": self.site,
            **vars(layout),
            "image": self.image.path,
            "image_digest": self.image.digest,
            "image_mark": self.image.mark,
            "root": str(self.root),
            "needs": self.needs,
        }


@dataclass(frozen=True, kw_only=True)
class SubmissionContext(JobContext):
    """What all jobs of one sweep share."""

    data: Path
    store: Path
    stall_s: float
    git_commit: str | None
    git_dirty: bool | None
    minutes: Mapping[str, int] = field(default_factory=dict)  # time limits by cell id

    @property
    def preflight_key(self) -> str:
        """Equal for sweeps that one good preflight serves; its run's name ends with it."""
        asked = (
            # without what is asked for cells alone
            self.site.model_dump_json(exclude={"requeue", "time_min", "max_time_min", "signal_s"}),
            (self.cluster, self.image.path, self.image.digest),
            (sys.executable, os.getuid()),
            self.root.name,  # a copy of the code has its digest for a name
            [need for need in self.needs if need.use == "read"],  # results are each sweep's own
        )
        return hashlib.sha256(repr(asked).encode("utf-8", "surrogateescape")).hexdigest()[:16]


PREFLIGHT: Final = "preflight"
REPORT_NAME = "report.json"
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


class PreflightReport(Frozen, extra="ignore"):  # keys of earlier versions are no fault
    """report.json"""

    job: str
    at: AwareDatetime
    nodes: tuple[str, ...]
    ranks_per_node: int = 0  # an earlier version did not note it
    versions: dict[str, str]
    problems: tuple[Problem, ...]
    locks: tuple[tuple[str, str], ...] = ()  # machines: whose lock, and by whom it was seen

    @property
    def ok(self) -> bool:
        return not self.problems


def minutes_for(site: Site) -> int:
    """Time limit of the preflight job."""
    return math.ceil((site.preflight_s + START_S) / 60) + 1


def preflights_beside(sweep: Path) -> list[Path]:
    """Folders of all preflights of this folder of results, the newest first."""
    return sorted((sweep.parent / PREFLIGHT).glob("*"), reverse=True)


def read_preflight(folder: Path) -> PreflightReport | None:
    try:
        return PreflightReport.model_validate_json((folder / REPORT_NAME).read_bytes())
    except (OSError, ValueError):
        return None


def report_of(sweep: Path, job: str) -> PreflightReport | None:
    """What the preflight job with this id found; None where it left no report."""
    reports = map(read_preflight, preflights_beside(sweep))
    return next((report for report in reports if report and report.job == job), None)
