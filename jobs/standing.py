"""What is told about the cells of a sweep before it runs and when it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from jobs.ledger import FORCED, NEW, RUNNING, UNREADABLE, Standing
from jobs.options import EXIT_CELL_FAILED, EXIT_UNDECIDED, say
from jobs.sweep import Sweep


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


def say_results(cells: Sequence[Standing], results: Mapping[str, str]) -> int:
    """Returns the exit code: a cell that cannot be read is no failed one, and no good one."""
    skipped = [c.status for c in cells if not c.to_run and c.config.cell_id() not in results]
    counts = Counter([*results.values(), *skipped])
    say("all cells: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
    unreadable = counts[UNREADABLE]
    bad = len(cells) - counts["completed"] - counts["diverged"] - unreadable
    if bad:
        say(f"{bad} cells did not complete; the report says why; make sweep runs them again")
    if unreadable:
        say(f"{unreadable} cells were left alone: a file that says where they stand cannot be read")
    return EXIT_CELL_FAILED if bad else EXIT_UNDECIDED if unreadable else 0
