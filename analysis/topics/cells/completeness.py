"""Which planned cells have no result, and why: each cause once, with the command to read more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from analysis import fmt
from analysis.records.frames import Frames
from analysis.records.gather import Problem
from analysis.table import Column, Table, frame
from analysis.topics.topic import MOST_CHARACTERS, Answer, Topic
from analysis.writing import printable
from train.errors import make_line
from train.record.cause import cause_line, pieces
from train.record.run import RunError

_LEAST_CHARACTERS = 60  # of a cause that is cut; the table has all
_BETWEEN = 24  # characters between its parts
PROBLEMS: tuple[Column, ...] = (
    Column("cell", "string", "cell", wide=True),
    Column("kind", "string", "kind"),
    Column("status", "string", "status"),
    Column("rank", "Int64", "rank", only_if_varied=True),
    Column("what", "string", "what", wide=True),
    Column("where", "string", "where", only_if_varied=True),
    Column("what_to_do", "string", "what to do", wide=True),
)


class Cause(NamedTuple):
    """Problems of one kind that differ only in names, hosts, numbers, ids and paths."""

    text: str
    first: Problem
    cells: int


def table(problems: Sequence[Problem]) -> Table:
    """One row per planned cell that is in no other table."""
    rows = [{**one.__dict__, "cell": one.cell_id, "what": one.reason} for one in problems]
    return Table("cells_not_used", "Cells without a usable record", PROBLEMS, frame(rows, PROBLEMS),
                 folded=True)  # fmt: skip


def complete(frames: Frames) -> Iterable[Answer]:
    """Whether planned cells have no result, and why."""
    key, question, plan = "complete", "Is it complete?", len(frames.planned)
    kinds: Counter[str] = Counter(problem.kind for problem in frames.problems)
    if not plan:
        yield Answer(key, question, "The plan has no cells: there is nothing to report.")
    if not frames.problems:
        return
    found = causes(frames.problems)
    head = _head(frames, kinds, len(found))
    # a cell of merged sweeps is SWEEP/CELL
    sweeps = {one.cell_id.rpartition("/")[0] or frames.name: None for one in frames.problems}
    then = "then " if found else "the next "
    then += " and ".join(make_line("sweep", frames.results, SWEEP=one) for one in sweeps)
    then += " run " if len(sweeps) > 1 else " runs "
    then += "the rest" if kinds["failed"] < plan else "it again" if plan == 1 else "them again"
    # a rejected record says completed or diverged, so a sweep takes it for done
    then += ", a rejected cell once its folder is moved away" if kinds["rejected"] else ""
    if not found:
        yield Answer(key, question, f"{head}.", "cells_not_used", "cells", [then])
        return
    first, others = found[0], len(found) - 1
    alone = kinds["failed"] == plan and not others
    count = "" if alone else f"{fmt.counted(first.cells, 'cell')}: "
    logs = f"{count}{logs_line(frames, first.first.cell_id)} shows more"
    also = f"{fmt.counted(others, 'more reason')} in the table" if others else ""
    todo = " ".join(printable(first.first.what_to_do or "").split())
    # the last sentence has how to go on
    todo = todo.removesuffix(".").removesuffix("make sweep again").removesuffix(", then ")
    room = MOST_CHARACTERS - _BETWEEN - sum(map(len, (head, logs, also, then)))
    todo = todo if len(todo) <= room - _LEAST_CHARACTERS else "see the table"
    most, cause = max(room - len(todo), _LEAST_CHARACTERS), first.text
    cause = cause if len(cause) <= most else f"{cause[: most - 3].rstrip()}..."
    more = [f"what to do: {todo}" if todo else "", also, then]
    yield Answer(key, question, f"{head}: {cause} ({logs}).", "cells_not_used", "cells", more)


def _head(frames: Frames, kinds: Mapping[str, int], causes: int) -> str:
    usable, plan = len(frames.runs), len(frames.planned)
    if kinds["failed"] == plan:
        reasons = "one reason" if causes == 1 else fmt.counted(causes, "reason")
        return "The only cell failed" if plan == 1 else f"All {plan:,} cells failed, for {reasons}"
    ends = Counter(p.status if p.kind == "failed" else p.kind for p in frames.problems)
    lacking = ", ".join(f"{count:,} {end}" for end, count in ends.most_common())
    diverged = int((frames.runs["status"] == "diverged").sum())
    among = f", {diverged:,} of them diverged" if diverged else ""
    are = f"{'is' if usable == 1 else 'are'} usable{among} ({lacking})"
    return f"{usable:,} of {plan:,} planned cells {are}"


@lru_cache(maxsize=1)  # for the answer and the page
def causes(problems: tuple[Problem, ...]) -> list[Cause]:
    """Of all that is not merely missing, the most frequent first."""
    found: dict[tuple[str, ...], list[tuple[Problem, list[str]]]] = {}
    for problem in problems:
        if problem.kind != "missing":
            own = pieces(why(problem), problem.cell_id, problem.hosts)
            key = (problem.kind, *(stands_for for _, stands_for in own))
            found.setdefault(key, []).append((problem, [text for text, _ in own]))
    made = [
        Cause(_seen([texts for _, texts in same]), same[0][0], len(same))
        for same in found.values()
    ]  # fmt: skip
    return sorted(made, key=lambda cause: -cause.cells)


def why(problem: Problem) -> str:
    """What happened and the last line of the log, as one line without control characters."""
    error = RunError(what=problem.reason, where="", what_to_do="", log_tail=problem.log_tail)
    return " ".join(printable(cause_line(error)).split()) or "its record does not say why"


def logs_line(frames: Frames, cell_id: str) -> str:
    """The command to read more; a cell of several sweeps is SWEEP/CELL."""
    sweep, _, cell = cell_id.rpartition("/")
    return make_line("logs", frames.results, SWEEP=sweep or frames.name, CELL=cell)


def _seen(lines: Sequence[Sequence[str]]) -> str:
    """The line of a cause, from the pieces of each cell's; different ones are listed."""
    columns = [sorted(set(own), key=fmt.by_number) for own in zip(*lines, strict=True)]
    return "".join(map(fmt.some, columns))


TOPIC = Topic(
    asks=lambda of: bool(of.frames.problems),
    tables=(lambda of: table(of.frames.problems),),
    answers=(lambda of: complete(of.frames),),
    needs=lambda of: True,
)
