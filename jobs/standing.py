"""What is told about the cells of a sweep before it runs and when it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from jobs.ledger import FORCED, NEW, RUNNING, Standing
from jobs.options import EXIT_CELL_FAILED, say
from jobs.sweep import Sweep


def say_standing(wanted: Sweep, cells: Sequence[Standing]) -> None:
    done = [cell for cell in cells if cell.done]
    say(f"{wanted.name}: {wanted.title}: {len(cells)} cells, {len(cells) - len(done)} to run")
    if done:
        counts = Counter(cell.status for cell in done)
        text = ", ".join(f"{count} {status}" for status, count in counts.items())
        again = "nothing to train" if len(done) == len(cells) else "these are skipped"
        say(f"good records are there already ({text}): {again}; FORCE=1 runs them anew")
    for cell in cells:
        if not cell.done and cell.status not in (NEW, FORCED):
            how = "goes on from its checkpoint" if cell.resume else "is run again"
            how = "is waited for" if cell.status == RUNNING else how
            say(f"{cell.config.cell_id()}: {cell.status} ({cell.why}): {how}")


def say_results(cells: Sequence[Standing], results: Mapping[str, str]) -> int:
    """Returns the exit code."""
    skipped = [cell.status for cell in cells if cell.done]
    counts = Counter([*results.values(), *skipped])
    say("all cells: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
    bad = len(cells) - counts["completed"] - counts["diverged"]
    if bad:
        say(f"{bad} cells did not complete; the report says why; make sweep runs them again")
    return EXIT_CELL_FAILED if bad else 0
