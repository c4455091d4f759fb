"""Spans of time as a reader sees them."""

from __future__ import annotations


def clock(seconds: float | None) -> str:
    """h:mm:ss, or m:ss below an hour; nothing for a time that is not known."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
