"""A rank or a host that holds up the others, from the ranks of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.page.report import build
from analysis.records.load import load_frames
from analysis.topics import ranks
from tests.analysis.builders import config, record, spread, write_sweep
from tests.analysis.planned import sweep
from train.record.measurements import RankSteps
from train.record.run import RunRecord

STEP_S = 0.5


def late_run(
    gpus: int, late: Mapping[int, float], *, per_host: int = 8, waits: bool = True, seed: int = 0,
    **changes: object,
) -> RunRecord:  # fmt: skip
    """A run whose ranks are ready after computing for 0.3 s and a little, these later by so much:
    all wait for the last one and have equal steps. ``waits``: whether records have waiting_s."""
    noise = np.random.default_rng(seed).normal(0, 0.002, gpus)
    ready = [0.3 + noise[rank] + late.get(rank, 0) for rank in range(gpus)]
    steps = tuple(
        RankSteps(
            rank=rank, step_s=spread(STEP_S), input_s=spread(0.01), compute_s=spread(own),
            communication_s=spread(max(ready) - own + 0.05), exposed_s=0.05,
            sampled=5 if waits else None, update_s=spread(0.01),
            waiting_s=spread(max(ready) - own) if waits else None,
            negotiation_s=spread(0.001) if waits else None,
        )
        for rank, own in enumerate(ready)
    )  # fmt: skip
    hosts = tuple(f"node{rank // per_host + 1}" for rank in range(gpus))
    world = {"hostnames": hosts, "nodes": len(set(hosts)), **changes}
    run = config(gpus=gpus, seed=seed, batch_per_rank=4)
    return record(run, world_changes=world, steps=steps)


def found(*records: RunRecord) -> pd.DataFrame:
    return ranks.table(sweep(records)).data


def flagged(*records: RunRecord) -> list[int]:
    data = found(*records)
    return sorted(data.loc[data["late"].fillna(False), "rank"])


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("gpus", "late"),
    [
        (64, {17: 0.1}),
        (64, {17: 0.1, 40: 0.2}),
        (64, dict.fromkeys(range(16, 24), 0.08)),
        (8, {3: 0.15}),
        (4, {0: 0.2}),
        (64, {}),
        (64, {17: 0.012}),  # surely late, by 2.4 % of a step: not worth a word
    ],
)
def test_a_late_rank_is_found_from_its_run_alone(
    gpus: int, late: dict[int, float], waits: bool
) -> None:
    expected = sorted(rank for rank, by in late.items() if by > 0.025)
    assert flagged(late_run(gpus, late, waits=waits)) == expected


def test_two_or_three_ranks_and_shared_cores_are_not_judged() -> None:
    few = found(late_run(2, {1: 0.2}), late_run(3, {1: 0.2}))
    shared = found(late_run(64, {17: 0.2}, oversubscribed=True))
    for data in (few, shared):
        assert data["late"].isna().all() and data["p"].isna().all()
    # the numbers are there: the late one waits least
    assert few.loc[few["gpus"] == 2].set_index("rank")["behind_s"].idxmax() == 1


def test_a_rank_has_a_host_and_a_place_on_it() -> None:
    data = found(late_run(8, {}, per_host=4))
    assert data["host"].tolist() == ["node1"] * 4 + ["node2"] * 4
    assert data["local_rank"].tolist() == [0, 1, 2, 3] * 2
    assert data["outside_epochs_s"].gt(0).all()


def test_the_answer_names_rank_host_and_what_it_costs(tmp_path: Path) -> None:
    frames = load_frames(write_sweep(tmp_path / "s", [late_run(64, {17: 0.1})]))
    report = build(replace(frames, sites=("alps",)), draw=False)
    (said,) = [one for one in report.answers if one.evidence == "every_rank"]
    assert said.text.startswith("Rank 17 (node3, local rank 1) is ready 99.2 ms after")
    assert "20 % of a step, and the others wait (p < 0.001" in said.text
    assert "make interconnect SITE=alps NODES=node3,node" in said.text
    assert len(said.text) <= 300


def test_a_slow_host_is_named_once(tmp_path: Path) -> None:
    slow = [late_run(64, dict.fromkeys(range(8), 0.1), seed=seed) for seed in (0, 1)]
    report = build(load_frames(write_sweep(tmp_path / "s", slow)), draw=False)
    (said,) = [one for one in report.answers if one.evidence == "every_rank"]
    assert said.text.count("naive, 64 ranks, seed") == 1 and "stand out in 2 runs" in said.text
    assert said.text.count("node1") == 1
    assert said.text.startswith("8 of 8 ranks of node1 are ready up to 1")
    assert "make interconnect" not in said.text  # of a run on no cluster


def test_of_several_late_ranks_the_largest_lateness_is_a_bound(tmp_path: Path) -> None:
    frames = load_frames(write_sweep(tmp_path / "s", [late_run(64, {17: 0.1, 40: 0.2})]))
    report = build(replace(frames, sites=("$al ps",)), draw=False)
    (said,) = [one for one in report.answers if one.evidence == "every_rank"]
    assert "are ready up to 1" in said.text or "are ready up to 2" in said.text, said.text
    assert "Measure again before you act" in said.text
    # make takes $ for its own
    assert "make interconnect SITE='$$al ps' NODES=node" in said.text
