"""The measurements of a run as a frame: a row each, as pairs.csv holds them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from train.interconnect.record import End, Measurement, Tournament


def pairs_frame(found: Tournament) -> pd.DataFrame:
    """Rates in bit/s, latencies in seconds; shares are of the measurement's time, ``carried`` of
    the bytes sent. A pair that gave no number has a row with its error."""
    return pd.DataFrame([_row(m) for m in found.measurements])


def _row(m: Measurement) -> dict[str, object]:
    rates = np.array(m.rates, dtype=float)
    some = len(rates) > 0
    return {
        "sender": m.sender,
        "receiver": m.receiver,
        "phase": m.phase,
        "together": m.together,
        "samples": len(rates),
        "rate": np.median(rates) if some else None,
        "rate_min": rates.min() if some else None,
        "rate_max": rates.max() if some else None,
        "latency_s": m.latency_s,
        "latency_min_s": m.latency_min_s,
        "wrong_bytes": m.wrong_bytes if some else None,
        "retransmitted": m.tcp.retransmitted if m.tcp else None,
        "path_mtu": m.tcp.path_mtu if m.tcp else None,
        "sender_busy": _share(m.at_sender, "cpu_s"),
        "sender_waited": _share(m.at_sender, "waited_s"),
        "receiver_busy": _share(m.at_receiver, "cpu_s"),
        "receiver_waited": _share(m.at_receiver, "waited_s"),
        "sent_carried": _carried(m, m.at_sender.sent_bytes if m.at_sender else None),
        "received_carried": _carried(m, m.at_receiver.received_bytes if m.at_receiver else None),
        "error": m.error,
    }


def _share(end: End | None, of: str) -> float | None:
    seconds = None if end is None else getattr(end, of)
    return None if seconds is None or end is None else seconds / end.wall_s


def _carried(m: Measurement, counted: int | None) -> float | None:
    return None if counted is None or not m.bytes else counted / m.bytes
