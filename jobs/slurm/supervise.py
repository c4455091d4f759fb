"""Not the supervisor, which is job/supervisor.py: a name kept for pickles of jobs that earlier
versions submitted.
"""

from __future__ import annotations

from jobs.slurm.job.supervisor import run_unit

__all__ = ["run_unit"]
