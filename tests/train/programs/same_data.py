"""Two ranks that are both given the first one's images, killed at the end of epoch 3, and set right
when they go on from epoch 2; prints the alarms of the whole run.

Usage: same_data.py OUT_FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.builders import config
from tests.train.trainer.test_trainer import Killed, killed_at, trainer
from train.config.optimizer import Sgd
from train.config.schedule import Grow
from train.config.technique import Technique
from train.distributed.launch import read_launch
from train.distributed.world import start


def main() -> None:
    out = Path(sys.argv[1])
    launch = read_launch(os.environ)
    # a batch that grows: alarms of later epochs differ in their numbers
    grow = Grow(milestones=(0.3,), factor=2, largest=64)
    technique = Technique(
        name="t", base_lr=0.01, base_batch=16, optimizer=Sgd(), batch_growth=grow
    )  # fmt: skip
    asked = config(
        model="resnet_mini", technique=technique, epochs=4, gpus=launch.size, batch_per_rank=8
    )  # fmt: skip
    runtime = start(asked, launch)

    from train.trainer import trainer as loop
    from train.trainer.trainer import Trainer

    apart = loop.process_batches

    def same(config: Any, data: Any, used: Any, plan: Any, _: int, *world: int) -> Any:
        return apart(config, data, used, plan, 0, *world)

    def build(attempt: int, beat: Any = lambda *_: None) -> Trainer:
        return trainer(asked, runtime, out, attempt, beat)

    loop.process_batches = same
    with suppress(Killed):
        build(1, killed_at("settling the batch-norm statistics after epoch 3")).train()
    loop.process_batches = apart
    found = build(2).train()
    print(json.dumps({"resumed_from": found.resumed_from, "alarms": found.alarms}))


main()
