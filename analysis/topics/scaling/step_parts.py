"""The parts of a step of each run, and which runs are one series.

Per run, with means over its ranks: ``step_s`` = ``input_s`` + ``fastest_s`` + ``shown_s`` +
``rest_s``; ``shown_s`` has all waiting for slower ranks in it. :mod:`analysis.topics.scaling.loss`
says what the parts mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.prediction.collectives import Link, ring

Floats = npt.NDArray[np.float64]
#: Steps that were all taken in parts last as long as their parts, up to this; others do not.
_SAME_STEPS = 1e-3
ABOUT = ["technique", "technique_label", "context", "scaling", "gpus"]
#: Part -> column of :func:`per_run`, by what the runs of a comparison have.
_FULL = {"input": "input_s", "compute": "fastest_s", "exposed": "sent_s", "waiting": "waited_s",
         "negotiation": "negotiated_s", "rest": "rest_s"}  # fmt: skip
SOURCES: dict[str, dict[str, str]] = {
    "modelled": {**{p: c for p, c in _FULL.items() if p != "exposed"},
                 "bandwidth": "bandwidth_s", "latency": "latency_s"},
    "full": _FULL,
    "communication": {"input": "input_s", "compute": "fastest_s", "communication": "shown_s",
                      "rest": "rest_s"},
    "waiting": {"input": "input_s", "compute": "fastest_s", "waiting": "behind_s",
                "rest": "hidden_s"},
    "compute": {"input": "input_s", "compute": "fastest_s", "rest": "unknown_s"},
    "nothing": {"rest": "step_s"},
}  # fmt: skip
VALUES = sorted({c for sources in SOURCES.values() for c in sources.values()})


def per_run(runs: pd.DataFrame, network: Link | None) -> pd.DataFrame:
    """The parts of each run, as float columns; see the head of this file."""
    real = {
        name: runs[name].astype("Float64").to_numpy(np.float64, na_value=np.nan)
        for name in ("step_s", "input_s", "compute_s", "compute_fastest_s", "communication_s",
                     "exposed_s", "waiting_s", "negotiation_s")
    }  # fmt: skip
    alone = (runs["gpus"] == 1).to_numpy(bool)
    for name in ("communication_s", "exposed_s", "waiting_s", "negotiation_s"):
        real[name] = np.where(alone, 0.0, real[name])
    step, computed = real["step_s"], real["input_s"] + real["compute_s"]
    in_parts = np.abs(step - computed - real["communication_s"]) <= _SAME_STEPS * step
    # every step was taken in parts: nothing overlapped the communication
    shown = np.where(
        np.isnan(real["exposed_s"]) & in_parts, real["communication_s"], real["exposed_s"]
    )
    waited = np.minimum(real["waiting_s"], shown)
    negotiated = np.minimum(real["negotiation_s"], shown - waited)
    fastest = real["compute_fastest_s"]
    skew = real["compute_s"] - fastest
    sent = shown - waited - negotiated
    latency = _latency_share(runs, network) * sent
    found = {
        "step_s": step,
        "input_s": real["input_s"],
        "fastest_s": fastest,
        "sent_s": sent,
        "shown_s": shown + skew,
        "waited_s": waited + skew,
        "negotiated_s": negotiated,
        "latency_s": latency,
        "bandwidth_s": sent - latency,
        "rest_s": step - computed - shown,
        "behind_s": real["waiting_s"] + skew,
        "hidden_s": step - computed - real["waiting_s"],
        "unknown_s": step - real["input_s"] - fastest,
    }
    about = runs[["series", *ABOUT, "global_batch", "oversubscribed", "step_parts_why"]]
    return about.assign(**found)


def _latency_share(runs: pd.DataFrame, network: Link | None) -> Floats:
    """Of the time of a ring of the gradients, by the model; NaN where it says nothing."""
    if network is None:
        return np.full(len(runs), np.nan)
    size = runs["gradient_bytes"].to_numpy(np.float64, na_value=np.nan)
    ranks = runs["gpus"].to_numpy(np.float64)
    messages, moved = ring(ranks, size)  # type: ignore[arg-type]  # elementwise, run by run
    first, second = messages * network.alpha, moved * network.beta
    with np.errstate(invalid="ignore"):
        share = np.where(ranks == 1, 0.0, first / (first + second))
    return np.asarray(share, np.float64)
