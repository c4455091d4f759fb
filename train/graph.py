"""How graphs are made here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def graph(function: Callable[..., Any]) -> Any:
    """``tf.function`` without AutoGraph: no Python branch here depends on a tensor, so there is
    nothing to convert, which takes longer than the tracing itself and leaves files in /tmp when a
    rank is ended. A branch on a tensor is an error when the graph is made. One graph serves all
    batch sizes."""
    return tf.function(function, autograph=False, reduce_retracing=True)
