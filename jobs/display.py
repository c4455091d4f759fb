"""What a person sees of a sweep: before it runs, while cells run, and when it is over."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

from jobs.cell.failure import grouped, read_more
from jobs.cell.heartbeat import read_sign
from jobs.cell.state import FORCED, NEW, RUNNING, UNREADABLE, Standing, recorded
from jobs.config.sweep import Sweep
from jobs.messages import EXIT_CELL_FAILED, EXIT_UNDECIDED, clock, say
from jobs.plan.differences import apart, common_start, in_words
from train.config.plan import epochs_to_train
from train.record.cell_folder import EPOCHS_NAME
from train.record.run import GOOD, EpochRecord

PLAIN_PERIOD_S = 10.0
#: More than two lines of epochs.jsonl.
TAIL_BYTES = 4096
#: Columns of the live table beside the cell's name, and the least width of each.
COLUMNS = {"state": 9, "epoch": 6, "loss": 6, "accuracy": 8, "images/s": 8, "time": 5}
PHASE_WIDTH = 16
WIDE = 110


@dataclass
class Row:
    cell: Standing
    state: str
    began: float | None = None
    took_s: float | None = None
    why: str = ""
    apart: str = ""  # what sets it apart from other cells beside its id

    @cached_property
    def epochs(self) -> int | None:
        """Of the whole run; None where it takes the data to know."""
        return epochs_to_train(self.cell.config)

    def last_epoch(self) -> EpochRecord | None:
        """From the end of its file alone: it is drawn often, beside ranks that are timed."""
        if self.state == "waiting":
            return None
        with contextlib.suppress(OSError), (self.cell.folder / EPOCHS_NAME).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            for line in reversed(file.read().splitlines()):
                with contextlib.suppress(ValueError):  # half a line
                    return EpochRecord.model_validate_json(line)
        return None

    def spent_s(self) -> float:
        return time.monotonic() - self.began if self.began else 0.0

    def rest_s(self) -> float | None:
        """Seconds of the epochs to go at the pace of the last one; None before there is one, or
        where their number is not known."""
        last = self.last_epoch()
        if last is None or self.epochs is None:
            return None
        return max(0, self.epochs - last.epoch) * (last.train_s + last.eval_s)


@dataclass
class Board:
    """The state of the sweep; both displays draw it."""

    rows: dict[str, Row]
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, cells: Sequence[Standing]) -> Board:
        differing = apart([cell.config for cell in cells])
        rows = {}
        for cell in cells:
            name = cell.config.cell_id()
            state = "waiting" if cell.to_run else cell.status
            rows[name] = Row(cell, state, apart=in_words(differing[name]))
        return cls(rows)

    def started(self, cell: Standing) -> Row:
        row = self.rows[cell.config.cell_id()]
        row.state, row.began = "running", time.monotonic()
        return row

    def ended(self, cell: Standing, status: str, why: str) -> Row:
        row = self.rows[cell.config.cell_id()]
        row.state, row.why = status, why
        row.took_s = time.monotonic() - (row.began or self.began)
        return row

    def left_s(self) -> float | None:
        """Remaining seconds; None before anything is known.

        A running cell's rest is its epochs to go at the pace of its last one. A waiting cell takes
        as long as the finished cells of its size did, else as any, else as the running ones will.
        """
        took: dict[int, list[float]] = {}
        for row in self.rows.values():
            if row.took_s is not None:
                took.setdefault(row.cell.config.gpus, []).append(row.took_s)
        running = [row for row in self.rows.values() if row.state == "running"]
        rest = {id(row): row.rest_s() for row in running}
        any_cell = [s for times in took.values() for s in times] or [
            row.spent_s() + known for row in running if (known := rest[id(row)]) is not None
        ]
        if not any_cell:
            return None
        left = 0.0
        for row in self.rows.values():
            times = took.get(row.cell.config.gpus, any_cell)
            usual = sum(times) / len(times)
            if row.state == "waiting":
                left += usual
            elif row.state == "running":
                known = rest[id(row)]
                left += max(0.0, usual - row.spent_s()) if known is None else known
        return left


def numbers(row: Row) -> tuple[str, str, str, str]:
    """epoch, loss, accuracy, images/s of a row as text; '' where there is nothing yet."""
    last = row.last_epoch()
    if last is None:
        if row.state != "running":
            return "", "", "", ""
        sign = read_sign(row.cell.folder, 0)
        return of_all(0, row.epochs), "", "", "starting" if sign.at is None else sign.phase
    loss = "" if last.train_loss is None else f"{last.train_loss:.4f}"
    accuracy = "" if last.validation_accuracy is None else f"{last.validation_accuracy:.4f}"
    rate = f"{last.images / max(last.train_s, 1e-9):,.0f}"
    return of_all(last.epoch, row.epochs), loss, accuracy, rate


def of_all(epoch: int, epochs: int | None) -> str:
    """3/12, or 3 alone where the number of all is not known."""
    return str(epoch) if epochs is None else f"{epoch}/{epochs}"


class PlainDisplay:
    """One line per event, and for a running cell at most one every ten seconds."""

    def __init__(self, cells: Sequence[Standing], out: TextIO) -> None:
        self.board = Board.of(cells)
        self.out = out
        self._last = time.monotonic()
        self._width = len(str(len(cells)))

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a reader that is gone must not end a sweep
            print(text, file=self.out, flush=True)
        self._last = time.monotonic()

    def started(self, cell: Standing) -> None:
        row = self.board.started(cell)
        number = list(self.board.rows).index(cell.config.cell_id()) + 1
        how = " (going on from its checkpoint)" if cell.resume else ""
        how = " by an earlier make sweep, waiting for it" if cell.status == RUNNING else how
        self._say(f"[{number:>{self._width}}/{len(self.board.rows)}] {_told(row)}: started{how}")

    def tick(self) -> None:
        if time.monotonic() - self._last < PLAIN_PERIOD_S:
            return
        for name, row in self.board.rows.items():
            if row.state == "running":
                epoch, loss, accuracy, rate = numbers(row)
                self._say(
                    f"    {name}: epoch {epoch} loss {loss or '-'} accuracy {accuracy or '-'} "
                    f"images/s {rate or '-'}; left {clock(self.board.left_s()) or '?'}"
                )

    def ended(self, cell: Standing, status: str, why: str) -> None:
        row = self.board.ended(cell, status, why)
        epoch, loss, accuracy, rate = numbers(row)
        facts = f"epoch {epoch}, loss {loss}, accuracy {accuracy}, {rate} images/s"
        text = facts if status in GOOD else why
        self._say(
            f"    {cell.config.cell_id()}: {status} after {row.took_s:.0f} s: {text}"
            + (f" ({why})" if status in GOOD and why else "")
            + (f"; left {clock(left)}" if (left := self.board.left_s()) else "")
        )


class LiveDisplay:
    """A table that is drawn again while cells run; finished cells stay in it with their result."""

    def __init__(self, cells: Sequence[Standing], console: Console) -> None:
        self.board = Board.of(cells)
        self._console = console
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4)

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def started(self, cell: Standing) -> None:
        self.board.started(cell)

    def tick(self) -> None:
        """The table draws itself."""

    def ended(self, cell: Standing, status: str, why: str) -> None:
        self.board.ended(cell, status, why)
        if status not in GOOD:
            text = f"{cell.config.cell_id()}: {status}: {why}"
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        rows = self.board.rows
        over = sum(row.state not in ("waiting", "running") for row in rows.values())
        table = Table(
            title=f"{over} of {len(rows)} cells done, left {clock(self.board.left_s()) or '?'}",
            title_justify="left",
            box=None,
            pad_edge=False,
        )
        table.add_column("cell", no_wrap=True, overflow="ellipsis")
        # the names give way to the numbers where a terminal is narrow
        for name, width in COLUMNS.items():
            table.add_column(
                name, justify="right" if name != "state" else "left", no_wrap=True,
                min_width=width, max_width=max(width, PHASE_WIDTH),
            )  # fmt: skip
        start = common_start(list(rows)) if self._console.width < WIDE else ""
        height = max(8, self._console.height - 8)
        for row in _window(list(rows.values()), height):
            spent = row.spent_s() if row.state == "running" else None
            name = row.cell.config.cell_id()
            table.add_row(
                f"..{name.removeprefix(start)}" if start else _told(row),
                row.state,
                *numbers(row),
                clock(row.took_s or spent),
            )
        return table


def _told(row: Row) -> str:
    """The cell's name, and what it does not say of it."""
    return row.cell.config.cell_id() + (f" ({row.apart})" if row.apart else "")


def _window(rows: list[Row], height: int) -> list[Row]:
    """The rows around the running ones when the terminal is too small for all."""
    if len(rows) <= height:
        return rows
    running = [i for i, row in enumerate(rows) if row.state == "running"]
    first = max(0, min((running[0] if running else 0) - 2, len(rows) - height))
    return rows[first : first + height]


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
