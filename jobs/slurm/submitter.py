"""Submit the cells of one run: as many as the site lets wait, and nothing after a bad preflight."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.ledger import Standing
from jobs.options import say
from jobs.slurm.gate import hold_by_preflight, largest
from jobs.slurm.inventory import report_of
from jobs.slurm.send import Sending, plan_arrays, send
from train.config.run import RunConfig


@dataclass
class Submitter:
    """Submits what is to run, as far as the site's limit allows; the rest when there is room."""

    sending: Sending
    todo: list[Standing]
    preflight: bool
    first: str | None = None  # the preflight job, once there is one

    def more(self, alive: int) -> list[RunConfig]:
        """``alive``: our jobs in the queue. Returns the cells that were submitted."""
        if not self.todo:
            return []
        limit = self.sending.site.submit_limit
        # alone in the queue, even the smallest limit has room for one
        room = None if limit is None else max(limit - alive - 1, int(alive == 0))
        if room == 0 or not self._may(alive):
            return []
        note, later = send(self.sending, self.todo, room, self.first if self.preflight else None)
        waiting = set(later)
        sent = [cell for cell in self.todo if cell.config.cell_id() not in waiting]
        self.todo = [cell for cell in self.todo if cell.config.cell_id() in waiting]
        jobs = ", ".join(str(array.job_id) for array in note.arrays)
        say(f"submitted {len(sent)} cells in {len(note.arrays)} sbatch calls (jobs {jobs})")
        if waiting:
            say(f"{len(waiting)} cells wait for room in the queue (submit_limit {limit})")
        return [cell.config for cell in sent]

    def _may(self, alive: int) -> bool:
        """Whether cells may be submitted now: one preflight for all of a run, and nothing after a
        bad one."""
        if not self.preflight:
            return True
        if self.first is None:
            shape = largest(plan_arrays(self.sending, self.todo))
            self.first = hold_by_preflight(self.sending, shape)
            self.preflight = self.first is not None
            return True
        report = report_of(self.sending.folder, self.first)
        if report is not None and report.ok:
            self.preflight = False
            return True
        if report is not None or not alive:
            say(f"{len(self.todo)} cells are not submitted: the preflight, job {self.first}, did "
                "not end well")  # fmt: skip
            self.todo = []
        return False

    def waits(self) -> bool:
        return bool(self.todo)
