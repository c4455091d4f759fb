"""Effects of hosts against other formulas, and when there are none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.page.report import build
from analysis.records.load import load_frames
from analysis.stats.differences import holm
from analysis.table import plain_rows
from analysis.topics.scaling import nodes
from jobs.slurm.submissions import Array, RunNote, write_note
from tests.analysis.builders import START, config, rank_steps, record, runs_frame, write_sweep
from train.record.run import RunRecord


def run(seed: int, hosts: Sequence[str], step_s: float, **changes) -> RunRecord:
    """Of one rank per host."""
    ranks = len(hosts)
    world = {"nodes": len(set(hosts)), "hostnames": tuple(hosts), **changes.pop("world", {})}
    return record(
        config(gpus=ranks, seed=seed, **changes), world_changes=world,
        steps=tuple(rank_steps(rank, step_s) for rank in range(ranks)),
    )  # fmt: skip


def table(*items: RunRecord) -> pd.DataFrame:
    found = nodes.table(runs_frame(items)).data
    return found.set_index(found["host"].map(str))


def test_pairs_of_four_hosts_as_by_full_least_squares() -> None:
    """With a column per condition, the last host left out, and the contrast of the others; each
    condition has its own variance."""
    rng = np.random.default_rng(5)
    effect = dict(zip("abcd", (0.0, 0.1, 0.02, -0.03), strict=True))
    items, design, logs = [], [], []
    for batch, sd in ((16, 0.01), (32, 0.04)):
        for seed, pair in enumerate(2 * list(combinations("abcd", 2))):
            log = sum(effect[h] for h in pair) + rng.normal(0, sd) + (batch == 32)
            items.append(run(seed, pair, math.exp(log), batch_per_rank=batch))
            design.append([batch == 16, batch == 32, *(host in pair for host in "abc")])
            logs.append(log)
    x, y = np.array(design, float), np.array(logs)
    solution = np.linalg.inv(x.T @ x) @ x.T
    maker = np.eye(len(y)) - x @ solution
    residuals = maker @ y
    found, p = table(*items), {}
    for place, host in enumerate("abcd"):
        contrast = np.zeros(6)
        contrast[2:] = -1 / 3
        contrast[2 + place] = 1
        of_runs = contrast[:5] @ solution
        value, parts, squares = of_runs @ y, [], []
        for rows in (x[:, 0] == 1, x[:, 1] == 1):
            own = maker[np.ix_(rows, rows)]
            spread = residuals[rows] @ residuals[rows] / np.trace(own @ own)
            own_df = np.trace(own @ own) ** 2 / np.trace(own @ own @ own @ own)
            parts.append(of_runs[rows] @ of_runs[rows] * spread)
            squares.append(parts[-1] ** 2 / own_df)
        error, df = math.sqrt(sum(parts)), sum(parts) ** 2 / sum(squares)
        half = stats.t.ppf(0.975, df) * error
        row = found.loc[host]
        assert row["effect"] == pytest.approx(math.expm1(value))
        assert row["effect_low"] == pytest.approx(math.expm1(value - half))
        assert row["effect_high"] == pytest.approx(math.expm1(value + half))
        p[host] = 2 * stats.t.sf(abs(value) / error, df)
    adjusted = dict(zip(p, holm([*p.values()]), strict=True))
    for host, value in adjusted.items():
        assert found.loc[host, "p_holm"] == pytest.approx(value)


def test_a_condition_whose_scatter_nobody_knows_is_left_out() -> None:
    """c and d were used in a condition of three runs, which cannot say how far they scatter."""
    items = [run(s, ["ab"[s % 2]], 1.0 + s / 100) for s in range(8)]
    assert list(table(*items).index) == ["b", "a"]
    items += [run(s, [host], 1.0 + s / 10, batch_per_rank=32) for s, host in enumerate("acd")]
    assert list(table(*items).index) == ["b", "a"]


def test_each_host_needs_degrees_of_freedom_of_its_own() -> None:
    few = [run(s, ["cd"[s % 2]], 1.0 + s**2 / 50, batch_per_rank=32) for s in range(4)]
    found = table(*few, *(run(s, ["ab"[s % 2]], 1.0 + s**2 / 50) for s in range(8)))
    assert found.loc[["c", "d"], "effect_note"].eq(nodes.FEW).all()
    assert found.loc[["c", "d"], "effect"].notna().all()
    assert found.loc[["c", "d"], ["effect_low", "effect_high", "p_holm"]].isna().all(axis=None)
    assert found.loc[["a", "b"], ["effect_low", "effect_high", "p_holm"]].notna().all(axis=None)


def test_hosts_of_another_device_are_not_compared() -> None:
    """The V100 takes twice as long as the A100, and no host is to blame."""
    items = [
        run(8 * place + s, [pair[s % 2]], factor * (1.0 + (s * 7 % 8) / 100),
            world={"device": device, "device_kind": "gpu"})
        for place, (device, pair, factor) in enumerate((("V100", "ab", 2), ("A100", "cd", 1)))
        for s in range(8)
    ]  # fmt: skip
    found = table(*items)
    assert sorted(found.index) == ["a", "b", "c", "d"]
    assert (found["effect"].abs() < 0.05).all()


def test_hosts_that_are_always_together_are_one() -> None:
    items = [run(s, pair, 1.0 + 0.01 * (s % 3) + 0.2 * (pair[0] == "c"))
             for s, pair in enumerate(4 * [("a", "b"), ("c", "d")])]  # fmt: skip
    found = table(*items)
    assert list(found.index) == ["c, d", "a, b"]
    assert found["effect"].notna().all() and (found["n_with"] == 4).all()


def test_hosts_that_no_run_connects_are_not_compared() -> None:
    """a with b and c with d, in conditions of their own; between these nothing is known."""
    items = [
        run(s, [host], 1.0 + 0.01 * (s % 3) + 5 * (batch == 32), batch_per_rank=batch)
        for batch, pair in ((16, "ab"), (32, "cd"))
        for s, host in enumerate(3 * pair)
    ]
    assert (table(*items)["effect"].abs() < 0.05).all()


def test_what_gives_no_effect() -> None:
    same = [run(s, ["a", "b"], 1.0 + s / 100) for s in range(6)]
    assert len(table(*same)) == 0, "one set of hosts"
    assert len(table(*(run(s, ["ab"[s % 2]], 1.0 + s / 100) for s in range(4)))) == 0, "2 df"
    nobody = [record(config(seed=s), world_changes={"hostnames": ()}) for s in range(8, 12)]
    hosts = [run(s, ["ab"[s % 2]], 1.0 + s / 100) for s in range(8)]
    assert table(*hosts, *nobody)["n_with"].tolist() == [4, 4], "a run without hosts is of none"
    shared = [run(s, ["ab"[s % 2]], 1 + s / 100, world={"oversubscribed": True}) for s in range(8)]
    assert len(table(*shared)) == 0
    spread = [run(s, ["a", "b"] if s % 2 else ["a", "a"], 1.0 + s / 100) for s in range(8)]
    assert len(table(*spread)) == 0, "one node or two is no matter of hosts"
    assert len(nodes.table(runs_frame([])).data) == 0
    equal = table(*(run(s, ["ab"[s % 2]], 1.0) for s in range(8)))
    assert equal["p_holm"].isna().all() and equal["effect_note"].eq(nodes.IDENTICAL).all()


def slow_sweep(folder: Path, factor: float) -> Path:
    rng = np.random.default_rng(3)
    names = [f"node{n}.centre" for n in range(1, 7)]
    items = [
        run(seed, pair, math.exp(rng.normal(0, 0.01)) * (factor if names[2] in pair else 1))
        for seed, pair in enumerate(combinations(names, 2))
    ]
    folder = write_sweep(folder, items, techniques=["naive"])
    array = Array(job_id="5", cells=tuple(item.cell_id for item in items), nodes=2,
                      ranks_per_node=1, minutes=10)  # fmt: skip
    write_note(folder, RunNote(run="r", site="mycluster", job_name="n", arrays=(array,),
                               submitted_at=START.replace(hour=11)))  # fmt: skip
    return folder


def test_a_suspect_is_an_answer_with_its_command(tmp_path: Path) -> None:
    report = build(load_frames(slow_sweep(tmp_path / "s", 1.15)), draw=False)
    (answer,) = [answer for answer in report.answers if answer.key == "nodes"]
    slowest, *others = plain_rows(report.tables["node_effects"].data)
    assert slowest["host"] == ("node3.centre",) and 0.13 < slowest["effect"] < 0.17
    beside = sorted(others, key=lambda row: abs(row["effect"]))[:3]
    named = ",".join(row["host"][0].removesuffix(".centre") for row in (slowest, *beside))
    low, high = (f"{100 * slowest[f'effect_{end}']:.0f} %" for end in ("low", "high"))
    assert answer.text == (
        f"Steps take {100 * slowest['effect']:.0f} % ({low} to {high}) longer on node3.centre "
        "(5 runs with it, 10 without). The command make interconnect SITE=mycluster "
        f"NODES={named} measures the network there and compares the hosts."
    )
    assert [answer.key for answer in report.answers] == ["nodes"]


def test_a_host_that_is_hardly_slower_is_no_suspect(tmp_path: Path) -> None:
    report = build(load_frames(slow_sweep(tmp_path / "s", 1.03)), draw=False)
    assert report.tables["node_effects"].data["p_holm"].min() < nodes.ALPHA
    assert [answer.key for answer in report.answers if answer.key == "nodes"] == []
