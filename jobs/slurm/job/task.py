"""What a Slurm job is to do: run cells one after another, or check what a preflight reports.

Plain JSON values.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from pydantic import AwareDatetime, ValidationError

from jobs.cell.container import FileMark
from jobs.config.site import Site
from train.config.frozen import Frozen


class JobTask(Frozen):
    """One array element; the same text is read again when Slurm requeues the job."""

    cells: tuple[str, ...]  # folders, in the order in which they run
    forced: tuple[str, ...] = ()  # of these, those whose older records are put aside first
    asked_at: AwareDatetime  # records older than this are "older"
    site: Site
    nodes: int
    ranks_per_node: int
    image: str  # path of the SIF file, or "none"
    image_digest: str | None  # when it was submitted
    image_mark: FileMark | None = None  # of the file that had it
    root: str  # the checkout
    data: str
    store: str
    folders: tuple[str, ...] = ()  # data sets that are folders of images
    stall_s: float
    minutes: int  # the job's time limit
    block: str  # run, array and place of the unit: cells of one block shared their nodes
    git_commit: str | None = None
    git_dirty: bool | None = None


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

    folder: str  # of its report
    key: str
    site: Site
    nodes: int
    ranks_per_node: int
    image: str
    root: str
    data: str
    store: str
    folders: tuple[str, ...] = ()  # data sets that are folders of images


def minutes_for(site: Site) -> int:
    """Time limit of the preflight job."""
    return math.ceil((site.preflight_s + START_S) / 60) + 1


def preflights_beside(sweep: Path) -> list[Path]:
    """Folders of all preflights of this folder of results, the newest first."""
    return sorted((sweep.parent / PREFLIGHT).glob("*"), reverse=True)


def read_preflight(folder: Path) -> PreflightReport | None:
    try:
        text = (folder / REPORT_NAME).read_text(encoding="utf-8")
        return PreflightReport.model_validate_json(text)
    except (OSError, ValueError, ValidationError):
        return None


def report_of(sweep: Path, job: str) -> PreflightReport | None:
    """What the preflight job with this id found; None where it left no report."""
    reports = map(read_preflight, preflights_beside(sweep))
    return next((report for report in reports if report and report.job == job), None)
