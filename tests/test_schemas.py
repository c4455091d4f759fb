"""The exported JSON Schemas of the contracts; `make golden` writes them."""

from __future__ import annotations

import json
import os

import pytest
from pydantic import BaseModel

from tests.sweeps import ROOT
from train.config.run import RunConfig
from train.interconnect.collectives.record import Collectives
from train.interconnect.facts.record import NodeFacts
from train.interconnect.record import JobNote, Tournament
from train.record.run import RunRecord

SCHEMAS: dict[str, type[BaseModel]] = {
    "run_config": RunConfig,
    "run_record": RunRecord,
    "interconnect_facts": NodeFacts,
    "interconnect_collectives": Collectives,
    "interconnect_tournament": Tournament,
    "interconnect_job": JobNote,
}


@pytest.mark.parametrize(("name", "model"), SCHEMAS.items())
def test_exported_schemas_are_those_of_the_contracts(name: str, model: type[BaseModel]) -> None:
    file = ROOT / "docs" / "schema" / f"{name}.schema.json"
    text = json.dumps(model.model_json_schema(), indent=2) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), "if meant, see it with make golden"
