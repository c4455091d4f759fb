"""What larger counts of ranks will cost and reach, predicted from measured smaller ones."""

from typing import Literal

Scaling = Literal["weak", "strong"]
