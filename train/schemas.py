"""Export the JSON Schemas of the contracts: `python -m train.schemas FOLDER`."""

from __future__ import annotations

import argparse
import json

from pydantic import BaseModel

from train.config.run import RunConfig
from train.interconnect.collectives.record import Collectives
from train.interconnect.facts.record import NodeFacts
from train.interconnect.record import JobNote, Tournament
from train.program import place, run
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
    parser = argparse.ArgumentParser(prog="python -m train.schemas", description=__doc__)
    parser.add_argument("folder", type=place, metavar="FOLDER")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in SCHEMAS.items():
        text = json.dumps(model.model_json_schema(), indent=2) + "\n"
        write_atomically(folder / f"{name}.schema.json", text)


if __name__ == "__main__":
    run(main)
