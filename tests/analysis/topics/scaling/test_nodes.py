"""Effects of hosts against other formulas, their errors by simulation, and when there are none."""

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
from jobs.slurm.notes import ArrayNote, RunNote, write_note
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
    return nodes.table(runs_frame(items)).data.set_index("host")


def test_two_hosts_are_a_t_test_of_logarithms() -> None:
    times = {"a": [1.0, 1.02, 0.99], "b": [1.2, 1.25, 1.19, 1.22]}
    items = [run(10 * n + i, [host], s)
             for n, (host, own) in enumerate(times.items()) for i, s in enumerate(own)]  # fmt: skip
    found = table(*items)
    a, b = (np.log(times[host]) for host in "ab")
    expected = stats.ttest_ind(b, a)
    ends = expected.confidence_interval(0.95)
    row = found.loc["b"]
    assert row["effect"] == pytest.approx(math.exp(b.mean() - a.mean()) - 1)
    assert row["effect_low"] == pytest.approx(math.exp(ends.low) - 1)
    assert row["effect_high"] == pytest.approx(math.exp(ends.high) - 1)
    assert row["p_holm"] == pytest.approx(2 * expected.pvalue), "two hosts"
    assert (row["n_with"], row["n_without"]) == (4, 3)
    assert list(found.index) == ["b", "a"], "the slowest first"


def test_pairs_of_four_hosts_as_by_full_least_squares() -> None:
    """With a column per condition, the last host left out, and the contrast of the others."""
    rng = np.random.default_rng(5)
    effect = dict(zip("abcd", (0.0, 0.1, 0.02, -0.03), strict=True))
    items, design, logs = [], [], []
    for batch in (16, 32):
        for seed, pair in enumerate(2 * list(combinations("abcd", 2))):
            log = sum(effect[h] for h in pair) + rng.normal(0, 0.01) + (batch == 32)
            items.append(run(seed, pair, math.exp(log), batch_per_rank=batch))
            design.append([batch == 16, batch == 32, *(host in pair for host in "abc")])
            logs.append(log)
    x, y = np.array(design, float), np.array(logs)
    beta, *_ = np.linalg.lstsq(x, y, rcond=None)
    df = len(y) - 5
    covariance = np.linalg.inv(x.T @ x) * np.sum((y - x @ beta) ** 2) / df
    found, p = table(*items), {}
    for place, host in enumerate("abcd"):
        contrast = np.zeros(6)
        contrast[2:] = -1 / 3
        contrast[2 + place] = 1
        value = contrast[:5] @ beta
        error = math.sqrt(contrast[:5] @ covariance @ contrast[:5])
        half = stats.t.ppf(0.975, df) * error
        row = found.loc[host]
        assert row["effect"] == pytest.approx(math.expm1(value))
        assert row["effect_low"] == pytest.approx(math.expm1(value - half))
        assert row["effect_high"] == pytest.approx(math.expm1(value + half))
        p[host] = 2 * stats.t.sf(abs(value) / error, df)
    adjusted = dict(zip(p, holm([*p.values()]), strict=True))
    for host, value in adjusted.items():
        assert found.loc[host, "p_holm"] == pytest.approx(value)


def drawn(
    rng: np.random.Generator, hosts: int, each: int, runs: int, conditions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Which hosts each run used, and the number of its condition."""
    present = np.zeros((runs * conditions, hosts), dtype=bool)
    for row in present:
        row[rng.choice(hosts, each, replace=False)] = True
    return present, np.repeat(np.arange(conditions), runs)


def rejected(times: np.ndarray, group: np.ndarray, present: np.ndarray) -> np.ndarray:
    found = nodes.effects(times, group, present)
    assert found.df >= nodes.FEWEST_DF
    return holm(2 * stats.t.sf(np.abs(found.value / found.error), found.df)) < nodes.ALPHA


def test_without_an_effect_few_families_err() -> None:
    """Of 6,000 of each design: 3.8 %, 4.3 % and 4.0 %."""
    rng, errs = np.random.default_rng(1), []
    for hosts, each, runs in 300 * [(4, 1, 8), (6, 2, 9), (8, 3, 12)]:
        present, group = drawn(rng, hosts, each, runs, 2)
        times = rng.normal(0, 0.02, len(group)) + group
        errs.append(rejected(times, group, present).any())
    assert np.mean(errs) <= 0.05


def test_a_host_of_fifteen_percent_is_found() -> None:
    """It holds up every run that it is in, whatever else these use."""
    rng, repeats = np.random.default_rng(2), 50
    right = 0
    for _ in range(repeats):
        present, group = drawn(rng, 6, 2, 12, 2)
        times = rng.normal(0, 0.03, len(group)) + np.log(1.15) * present[:, 4] + group
        found = nodes.effects(times, group, present)
        right += rejected(times, group, present)[4] and np.argmax(found.value) == 4
    assert right / repeats >= 0.95


def test_hosts_that_are_always_together_are_one() -> None:
    items = [run(s, pair, 1.0 + 0.01 * (s % 3) + 0.2 * (pair[0] == "c"))
             for s, pair in enumerate(4 * [("a", "b"), ("c", "d")])]  # fmt: skip
    found = table(*items)
    assert list(found.index) == ["c d", "a b"]
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
    array = ArrayNote(job_id="5", units=tuple((item.cell_id,) for item in items), nodes=2,
                      ranks_per_node=1, minutes=10)  # fmt: skip
    write_note(folder, RunNote(run="r", site="mycluster", job_name="n", arrays=(array,),
                               submitted_at=START.replace(hour=11)))  # fmt: skip
    return folder


def test_a_suspect_is_an_answer_with_its_command(tmp_path: Path) -> None:
    report = build(load_frames(slow_sweep(tmp_path / "s", 1.15)), draw=False)
    (answer,) = [answer for answer in report.answers if answer.key == "nodes"]
    slowest, *others = plain_rows(report.tables["node_effects"].data)
    assert slowest["host"] == "node3.centre" and 0.13 < slowest["effect"] < 0.17
    beside = sorted(others, key=lambda row: abs(row["effect"]))[:3]
    named = ",".join(row["host"].removesuffix(".centre") for row in (slowest, *beside))
    low, high = (f"{100 * slowest[f'effect_{end}']:.0f} %" for end in ("low", "high"))
    assert answer.text == (
        f"Steps take {100 * slowest['effect']:.0f} % ({low} to {high}) longer on node3.centre "
        f"(5 runs with it, 10 without); make interconnect SITE=mycluster NODES={named} measures "
        "the network there and compares the hosts."
    )
    assert answer.numbers["command"] == f"make interconnect SITE=mycluster NODES={named}"
    assert [answer.key for answer in report.answers] == ["nodes", "one"]


def test_a_host_that_is_hardly_slower_is_no_suspect(tmp_path: Path) -> None:
    report = build(load_frames(slow_sweep(tmp_path / "s", 1.03)), draw=False)
    assert report.tables["node_effects"].data["p_holm"].min() < nodes.ALPHA
    assert [answer.key for answer in report.answers if answer.key == "nodes"] == []
