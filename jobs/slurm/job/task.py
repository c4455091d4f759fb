"""What a Slurm job is to do: cells to run one after another, and how. Plain JSON values."""

from __future__ import annotations

from pydantic import AwareDatetime

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
