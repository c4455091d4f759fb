"""What is told about the cells of a sweep before it runs and when it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from jobs.causes import grouped, read_more
from jobs.ledger import FORCED, NEW, RUNNING, UNREADABLE, Standing, recorded
from jobs.options import EXIT_CELL_FAILED, EXIT_UNDECIDED, say
from jobs.sweep import Sweep
from train.record.run import GOOD

#: Causes that are told when a sweep is over.
MAX_CAUSES = 5


def say_standing(wanted: Sweep, cells: Sequence[Standing]) -> None:
    done = [cell for cell in cells if cell.done]
    to_run = sum(cell.to_run for cell in cells)
    say(f"{wanted.name}: {wanted.title}: {len(cells)} cells, {to_run} to run")
    if done:
        counts = Counter(cell.status for cell in done)
        text = ", ".join(f"{count} {status}" for status, count in counts.items())
        again = "nothing to train" if len(done) == len(cells) else "these are skipped"
        say(f"good records are there already ({text}): {again}; FORCE=1 runs them anew")
    for cell in cells:
        if not cell.done and cell.status not in (NEW, FORCED):
            how = "goes on from its checkpoint" if cell.resume else "is run again"
            how = {RUNNING: "is waited for", UNREADABLE: "is left alone"}.get(cell.status, how)
            say(f"{cell.config.cell_id()}: {cell.status} ({cell.why}): {how}")


def say_results(wanted: Sweep, cells: Sequence[Standing], results: Mapping[str, str]) -> int:
    """Returns the exit code: a cell that cannot be read is no failed one, and no good one."""
    skipped = [c.status for c in cells if not c.to_run and c.config.cell_id() not in results]
    counts = Counter([*results.values(), *skipped])
    say("all cells: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
    unreadable = counts[UNREADABLE]
    bad = len(cells) - counts["completed"] - counts["diverged"] - unreadable
    if bad:
        ends = {cell.config.cell_id(): cell.status for cell in cells} | dict(results)
        _say_causes(wanted, [c for c in cells if ends[c.config.cell_id()] not in GOOD])
        say(f"{bad} cells did not complete; the report says why; make sweep runs them again")
    if unreadable:
        say(f"{unreadable} cells were left alone: a file that says where they stand cannot be read")
    return EXIT_CELL_FAILED if bad else EXIT_UNDECIDED if unreadable else 0


def _say_causes(wanted: Sweep, cells: Iterable[Standing]) -> None:
    """Why cells did not complete, as their records say it."""
    now = [recorded(cell.config, cell.folder) for cell in cells]
    groups = grouped((one for one in now if one.cause), lambda one: (one.status, one.cause))
    for same in groups[:MAX_CAUSES]:
        more = read_more(wanted.asked, same[0].config.cell_id())
        count = f"{len(same)} cells" if len(same) > 1 else "1 cell"
        say(f"{count} {same[0].status}: {same[0].why} ({more})")
    if len(groups) > MAX_CAUSES:
        say(f"and {len(groups) - MAX_CAUSES} other causes: make status shows the cells")
