"""Tables, statistics and pages from records. For notebooks: report, load_runs, compare."""

from __future__ import annotations

from typing import Any

_LAZY = {
    "report": ("analysis.notebook", "report"),
    "load_runs": ("analysis.records.load", "load_frames"),
    "compare": ("analysis.topics.comparisons.changes", "table"),
}
__all__ = ["compare", "load_runs", "report"]


def __getattr__(name: str) -> Any:
    """pandas and scipy take a second to load: only who asks for one of these waits."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    module, attribute = _LAZY[name]
    return getattr(importlib.import_module(module), attribute)
