"""How often networks like the one just measured would be judged rightly: simulated beside it."""

from __future__ import annotations

import time

from train.interconnect.record import Calibrated, Tournament
from train.interconnect.simulate import Noise, calibrate

SHARES = (1.0, 0.9, 0.75, 0.5, 0.25)
TRIALS = 40
#: All of it may take about so long; large networks get fewer trials.
SECONDS = 10.0
#: Simulated noise is at least this, or no sample would ever differ.
LEAST = 0.002


def calibration_of(found: Tournament, seconds: float = SECONDS) -> tuple[Calibrated, ...]:
    """Empty where decisions need more nodes, or the noise is not known."""
    if len(found.nodes) < 3 or found.noise is None:
        return ()
    noise = Noise(pair=max(found.noise.cv, LEAST) / 2, sample=max(found.noise.cv, LEAST))
    began = time.monotonic()
    calibrate(len(found.nodes), noise, (SHARES[-1],), 1)
    each = max(time.monotonic() - began, 1e-4)
    trials = int(min(TRIALS, max(1, seconds / each / len(SHARES))))
    return tuple(
        Calibrated(share=row.share, trials=row.trials, named=row.named, wrong=row.wrong)
        for row in calibrate(len(found.nodes), noise, SHARES, trials)
    )
