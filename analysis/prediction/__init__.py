"""What larger counts of ranks will cost and reach, predicted from measured smaller ones."""

from typing import Literal, NamedTuple

Scaling = Literal["weak", "strong"]


class Refusal(NamedTuple):
    """Why there is no number."""

    reason: str
