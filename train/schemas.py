"""Export the JSON Schemas of the contracts to docs/schema: `python -m train.schemas`."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel

from train.config.run import RunConfig
from train.interconnect.collectives.record import Collectives
from train.interconnect.facts.record import NodeFacts
from train.interconnect.record import JobNote, Tournament
from train.program import run
from train.record.atomic import write_atomically
from train.record.run import RunRecord

SCHEMAS: dict[str, type[BaseModel]] = {
    "run_config": RunConfig,
    "run_record": RunRecord,
    "interconnect_facts": NodeFacts,
    "interconnect_collectives": Collectives,
    "interconnect_tournament": Tournament,
    "interconnect_job": JobNote,
}


def main() -> None:
    folder = Path(__file__).resolve().parent.parent / "docs" / "schema"
    for name, model in SCHEMAS.items():
        text = json.dumps(model.model_json_schema(), indent=2) + "\n"
        write_atomically(folder / f"{name}.schema.json", text)


if __name__ == "__main__":
    run(main)
