"""The base of every type of the two contracts."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable; an unknown key is an error; NaN and infinity are not numbers here."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
