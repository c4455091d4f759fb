"""Machines and code: every value with its number of runs, the most common first."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from analysis.topics.cells import machine
from tests.analysis.builders import config, frames_of_records, record, runs_frame
from train.record.run import LinkTraffic


def found(*changes: dict[str, Any]) -> pd.DataFrame:
    items = [record(config(seed=seed), **change) for seed, change in enumerate(changes)]
    return machine.table(runs_frame(items)).data


def values(data: pd.DataFrame, what: str) -> list[tuple[str, int]]:
    own = data[data["what"] == what]
    return list(zip(own["value"], own["runs"], strict=True))


def test_one_run_has_one_value_of_each() -> None:
    data = found({})
    assert values(data, "git commit") == [("a" * 40, 1)]
    assert values(data, "tensorflow") == [("2.15.1", 1)]
    assert values(data, "hosts") == [("node1", 1)]
    assert data["what"].is_unique


def test_what_differs_is_counted_the_most_common_first() -> None:
    other = {"provenance_changes": {"git_commit": "b" * 40, "versions": {"tensorflow": "2.14"}}}
    data = found({}, other, other)
    assert values(data, "git commit") == [("b" * 40, 2), ("a" * 40, 1)]
    assert values(data, "horovod") == [("not recorded", 2), ("0.28.1", 1)]
    assert values(data, "tensorflow") == [("2.14", 2), ("2.15.1", 1)]


def test_a_record_without_provenance_is_counted() -> None:
    data = found({}, {"provenance": None})
    assert values(data, "git commit") == [("a" * 40, 1), ("not recorded", 1)]
    assert values(data, "tensorflow") == [("2.15.1", 1), ("not recorded", 1)]
    assert values(data, "uncommitted changes") == [("no", 1), ("not recorded", 1)]
    assert data.groupby("what")["runs"].sum().unique().tolist() == [2]


def test_of_many_values_the_rest_is_summed() -> None:
    many = [{"world_changes": {"hostnames": (f"node{i}",)}} for i in range(machine.MOST + 2)]
    named = values(found(*many), "hosts")
    assert len(named) == machine.MOST + 1
    assert named[-1] == ("2 others", 2)


def moved(host: str, interface: str, received: int, sent: int) -> LinkTraffic:
    return LinkTraffic(host=host, interface=interface, received_bytes=received, sent_bytes=sent)


def test_bytes_are_per_step_of_the_last_attempt_and_node() -> None:
    """10 steps an epoch; of three epochs two are of the last attempt."""
    two = {"nodes": 2, "hostnames": ("node1", "node2")}
    items = [
        record(config(gpus=2, seed=seed), world_changes=two,
               epoch_changes=[{"attempt": 1}, {"attempt": 2}, {"attempt": 2}],
               traffic=(moved("node1", "eth0", 40_000_000 + seed * 4_000_000, 20_000_000),
                        moved("node2", "eth0", 40_000_000, 60_000_000),
                        moved("node1", "lo", 4_000_000, 4_000_000)))
        for seed in (0, 1)
    ]  # fmt: skip
    frames = frames_of_records(items)
    table = machine.traffic(frames["traffic"], frames["epochs"], frames["runs"])
    rows = table.data.set_index("interface")
    # (40 + 40) MB / 20 steps / 2 nodes, and (44 + 40) MB
    assert rows.loc["eth0", "received_mb"] == pytest.approx((2.0 + 2.1) / 2)
    assert rows.loc["eth0", "sent_mb"] == pytest.approx(2.0)
    assert rows.loc["lo", "sent_mb"] == pytest.approx(0.1)
    assert rows["n"].tolist() == [2, 2] and rows["gpus"].tolist() == [2, 2]


def test_the_loopback_alone_is_not_shown() -> None:
    frames = frames_of_records([record(traffic=(moved("node1", "lo", 1000, 1000),))])
    assert not len(machine.traffic(frames["traffic"], frames["epochs"], frames["runs"]).data)


def test_hosts_that_differ_are_shown_with_what_differs() -> None:
    about = [("550.1", "6.1"), ("550.1", "6.1"), ("535.9", "6.8"), ("550.1", "6.1")]
    items = [
        record(config(seed=seed), world_changes={"hostnames": (f"node{seed % 3}",)},
               provenance_changes={"driver": driver, "kernel": kernel})
        for seed, (driver, kernel) in enumerate(about)
    ]  # fmt: skip
    shown = machine.hosts(runs_frame(items)).shown()
    assert [column.heading for column in shown.columns] == [
        "host", "GPU driver", "kernel", "runs"
    ]  # fmt: skip
    assert shown.rows == (
        ("node0", "550.1", "6.1", "2"), ("node1", "550.1", "6.1", "1"),
        ("node2", "535.9", "6.8", "1"),
    )  # fmt: skip
    alike = machine.hosts(runs_frame([items[0], items[1]]))
    assert alike.shown().rows == ()


ONE = record()


def mixtures(records):
    return [one.text for one in machine.mixtures(runs_frame(records))]


def other(**changes):
    return record(config(seed=1), **changes)


def test_equal_runs_need_no_warning() -> None:
    assert mixtures([ONE, other()]) == []


@pytest.mark.parametrize(
    ("changes", "said", "touches"),
    [
        ({"git_commit": "b" * 40}, "2 git commits: aaaaaaaaaaaa, bbbbb", "none"),
        ({"git_commit": None}, "2 git commits: aaaaaaaaaaaa, not recorded", "none"),
        ({"git_dirty": True}, "1 of 2 runs ran from a checkout with unc", "all"),
        ({"cpu": "Other"}, "2 CPU models", "times"),
        ({"driver": "550.1"}, "2 GPU drivers", "times"),
        ({"image_digest": "x"}, "ran from 2 images: 1 run from 0123; 1 run", "all"),
        ({"image_digest": None}, "1 run from an image that is not rec", "all"),
        ({"versions": {"horovod": "0"}}, "2 sets of package versions", "none"),
        ({"device": "Other CPU"}, "2 devices: Other CPU; Test CPU", "times"),
        ({"hostnames": ("uncommitted-devices",)},
         "Some runs share no host (node1, uncommitted-devices)", "times"),
        ({"fingerprint": "0" * 64}, "2 different contents", "all"),
    ],
)  # fmt: skip
def test_a_mixture_is_said_with_what_it_touches(changes: dict, said: str, touches: str) -> None:
    parts = {part: getattr(ONE, part) for part in ("provenance", "world", "data")}
    own = {part: found.model_copy(update=changes) for part, found in parts.items()
           if set(changes) <= set(type(found).model_fields)}  # fmt: skip
    (warning,) = machine.mixtures(runs_frame([ONE, other(**own)]))
    assert said in warning.text and warning.touches == touches


def test_cells_of_another_image_are_named() -> None:
    """As after an image was replaced while cells waited: most ran from the first."""
    new = [record(config(seed=n), provenance_changes={"image_digest": "b" * 64}) for n in (2, 3)]
    (warning,) = mixtures([new[0], ONE, other(), record(config(seed=4)), new[1]])
    named = f"{new[0].cell_id} and 1 more"
    assert f"2 images: 3 runs from 0123; 2 runs from {'b' * 12} ({named})." in warning
    assert ONE.cell_id not in warning
    assert "make sweep FORCE=1" in warning


def test_a_run_on_some_of_the_same_hosts_is_the_same_machine() -> None:
    two = record(config(gpus=2), world_changes={"hostnames": ("node1", "node2"), "nodes": 2})
    assert mixtures([ONE, two]) == []


def test_a_device_that_names_its_cores_is_not_told_twice() -> None:
    items = [record(world_changes={"device": "CPU X, 2 cores per rank"})]
    ((line, _),) = machine.machines(runs_frame(items))
    assert line.startswith("CPU X, 2 cores per rank, 1 node, ")


def test_machines_name_gpus_and_nodes() -> None:
    world = {
        "device_kind": "gpu", "device": "NVIDIA H100", "nodes": 2, "data_plane": "nccl",
        "controller": "mpi", "launcher": "srun",
    }  # fmt: skip
    assert machine.machines(runs_frame([record(world_changes=world)])) == [
        (
            "NVIDIA H100, 1 GPU per rank, 2 nodes, launcher srun, controller mpi, data plane nccl",
            1,
        )
    ]


def test_hosts_that_all_overlap_are_one_machine_and_others_are_not() -> None:
    pairs = [("a", "b"), ("b", "c"), ("c", "a")]
    items = [record(config(gpus=2, seed=n), world_changes={"hostnames": pair, "nodes": 2})
             for n, pair in enumerate(pairs)]  # fmt: skip
    assert mixtures(items) == [], "no host is in all, yet each two share one"
    apart = record(config(gpus=2, seed=9), world_changes={"hostnames": ("d", "a"), "nodes": 2})
    assert "Some runs share no host (a, b, c, d)" in mixtures([*items, apart])[0]


def test_values_of_equal_counts_stand_in_the_order_of_the_runs() -> None:
    commits = ["c", "a", "b", "a", "b"]
    items = [record(config(seed=n), provenance_changes={"git_commit": commit})
             for n, commit in enumerate(commits)]  # fmt: skip
    rows = [row[1:] for row in machine.provenance_rows(runs_frame(items)) if row[0] == "git commit"]
    assert rows == [("a", 2), ("b", 2), ("c", 1)]
