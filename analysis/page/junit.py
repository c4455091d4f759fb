"""A sweep as JUnit XML: a case for every planned cell, so that a test collector shows what is lost.

failure: the cell failed, or its record cannot be used; skipped: it has no record yet.
"""

from __future__ import annotations

from datetime import UTC, datetime

from analysis import fmt
from analysis.records.frames import Frames
from analysis.records.gather import Problem
from analysis.topics.cells.completeness import logs_line, why
from analysis.writing import Case, Result, Suite, junit_text


def junit(frames: Frames) -> str:
    """The text of junit.xml; the time of a case is its end_to_end_s."""
    runs = frames.runs
    seconds = dict(zip(runs["cell_id"], runs["end_to_end_s"].fillna(0.0), strict=True))
    results = {problem.cell_id: _result(problem, frames) for problem in frames.problems}
    cases = [
        Case(cell, results.get(cell), seconds.get(cell, 0.0)) for cell in frames.planned["cell_id"]
    ]
    return junit_text([Suite(frames.name, cases, frames.name, "sweep", began(frames))])


def began(frames: Frames) -> datetime:
    """When the first usable run began."""
    starts = [datetime.fromisoformat(text) for text in frames.runs["started_at"].dropna()]
    return min(starts, default=datetime(1970, 1, 1, tzinfo=UTC))


def _result(problem: Problem, frames: Frames) -> Result:
    if problem.kind == "missing":
        return Result("skipped", problem.kind, problem.reason)
    rank = "" if problem.rank is None else f"rank {problem.rank}"
    about = fmt.joined([rank, problem.where or "", problem.what_to_do or ""], "; ")
    logs = logs_line(frames, problem.cell_id)
    text = "\n".join(
        [fmt.joined([problem.reason, about, f"{logs} shows more"], "\n"), *problem.log_tail]
    )
    return Result("failure", problem.kind, why(problem), text)
