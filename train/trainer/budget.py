"""When a run stops at an epoch's end, so that its job ends in time and another one goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from train.record.cell_folder import file_mark

#: The next epoch may take this much longer than the longest so far,
MARGIN = 1.15
#: and then ranks leave and the supervisor writes down what became of them: seconds.
LEAVE_S = 5.0


@dataclass(frozen=True)
class Budget:
    """What bounds one start; nothing of it changes what the epochs compute."""

    stop_at: float | None = None  # seconds since 1970 at which the ranks must be gone
    asked: Path | None = None  # file whose being there asks for a stop

    def why_stop(self, longest_s: float, now: float) -> str:
        """Why to stop at this epoch's end; empty: no reason.

        Args:
            longest_s: the longest epoch of this start, training, validation and checkpoint.
            now: seconds since 1970.
        """
        # a file server that is away asks for nothing
        if self.asked is not None and file_mark(self.asked) is not None:
            return "a stop at the next epoch end was asked for"
        if self.stop_at is not None and now + MARGIN * longest_s + LEAVE_S > self.stop_at:
            return "the time budget has no room for another epoch"
        return ""
