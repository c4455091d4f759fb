"""The name by which pickles of jobs that an earlier version submitted find their program."""

from __future__ import annotations

from jobs.slurm.job.supervisor import run_unit

__all__ = ["run_unit"]
