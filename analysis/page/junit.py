"""A sweep as JUnit XML: a case for every planned cell, so that a test collector shows what is lost.

failure: the cell failed, or its record cannot be used; skipped: it has no record yet.
"""

from __future__ import annotations

from datetime import UTC, datetime

from analysis.records.frames import Frames
from analysis.records.gather import Problem
from analysis.table import joined
from analysis.writing import Case, Result, Suite, junit_text


def junit(frames: Frames) -> str:
    """The text of junit.xml; the time of a case is its end_to_end_s."""
    runs = frames.runs
    seconds = dict(zip(runs["cell_id"], runs["end_to_end_s"].fillna(0.0), strict=True))
    results = {problem.cell_id: _result(problem) for problem in frames.problems}
    cases = [
        Case(cell, results.get(cell), seconds.get(cell, 0.0)) for cell in frames.planned["cell_id"]
    ]
    began = [datetime.fromisoformat(text) for text in runs["started_at"].dropna()]
    first = min(began, default=datetime(1970, 1, 1, tzinfo=UTC))
    suite = Suite(frames.name, cases, frames.name, "sweep", first, sum(seconds.values()))
    return junit_text([suite])


def _result(problem: Problem) -> Result:
    if problem.kind == "missing":
        return Result("skipped", problem.kind, problem.reason)
    rank = "" if problem.rank is None else f"rank {problem.rank}"
    about = joined([rank, problem.where or "", problem.what_to_do or ""], "; ")
    text = "\n".join([joined([problem.reason, about], "\n"), *problem.log_tail])
    return Result("failure", problem.kind, problem.reason, text)
