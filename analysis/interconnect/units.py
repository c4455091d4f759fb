"""Numbers with three digits and a unit that fits them."""

from __future__ import annotations

import re


def bits(rate: float) -> str:
    """bit/s"""
    return _scaled(rate, (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)), "bit/s")


def seconds(time: float) -> str:
    return _scaled(time, (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)), "us", 1e-6)


def size(count: float) -> str:
    """Bytes, in powers of two as they are measured."""
    return _scaled(count, (("MiB", 2.0**20), ("KiB", 2.0**10)), "B")


def _scaled(
    value: float, units: tuple[tuple[str, float], ...], smallest: str, one: float = 1.0
) -> str:
    for unit, of in units:
        if abs(value) >= 0.9995 * of:  # three digits would round up to the next unit
            return f"{value / of:.3g} {unit}"
    return f"{value / one:.3g} {smallest}"


_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}


def read_rate(text: str) -> float:
    """bit/s of what tc and ethtool would write: ``200mbit``, ``100 Gbit``.

    Raises:
        ValueError: it is not of that form.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?bit)(?:/s)?\s*", text.lower())
    if found is None or float(found[1]) == 0:
        raise ValueError(f"found a rate of {text!r}, expected one like 200mbit or 100gbit")
    return float(found[1]) * _BITS[found[2]]
