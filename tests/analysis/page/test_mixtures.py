"""A table that mixes commits, trees, devices or machines says so; one that does not is silent."""

from __future__ import annotations

import pytest

from analysis.topics.cells import machine
from tests.analysis.builders import config, record, runs_frame

ONE = record()


def machines(records):
    return machine.machines(runs_frame(records))


def mixtures(records):
    return [one.text for one in machine.mixtures(runs_frame(records))]


def provenance_rows(records):
    return machine.provenance_rows(runs_frame(records))


def other(**changes):
    return record(config(seed=1), **changes)


def test_equal_runs_need_no_warning() -> None:
    assert mixtures([ONE, other()]) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"provenance_changes": {"git_commit": "b" * 40}}, "2 git commits: aaaaaaaaaaaa, bbbbb"),
        ({"provenance_changes": {"git_commit": None}}, "2 git commits: aaaaaaaaaaaa, not recorded"),
        ({"provenance_changes": {"git_dirty": True}}, "1 of 2 runs ran from a checkout with unc"),
        ({"provenance_changes": {"cpu": "Other"}}, "2 CPU models"),
        ({"provenance_changes": {"driver": "550.1"}}, "2 GPU drivers"),
        (
            {"provenance_changes": {"image_digest": "x"}},
            "ran from 2 images: 1 run from 0123; 1 run",
        ),
        ({"provenance_changes": {"image_digest": None}}, "1 run from an image that is not rec"),
        ({"provenance_changes": {"versions": {"horovod": "0"}}}, "2 sets of package versions"),
        ({"world_changes": {"device": "Other CPU"}}, "2 devices: Other CPU; Test CPU"),
        ({"world_changes": {"hostnames": ("node2",)}}, "Some runs share no host (node1, node2)"),
        ({"data": ONE.data.model_copy(update={"fingerprint": "0" * 64})}, "2 different contents"),
    ],
)
def test_a_mixture_is_said(changes: dict, said: str) -> None:
    (warning,) = mixtures([ONE, other(**changes)])
    assert said in warning


def test_cells_of_another_image_are_named() -> None:
    """As after an image was replaced while cells waited: most ran from the first."""
    new = [record(config(seed=n), provenance_changes={"image_digest": "b" * 64}) for n in (2, 3)]
    (warning,) = mixtures([new[0], ONE, other(), record(config(seed=4)), new[1]])
    named = ", ".join(one.cell_id for one in new)
    assert f"2 images: 3 runs from 0123; 2 runs from {'b' * 12} ({named})." in warning
    assert ONE.cell_id not in warning
    assert "make sweep FORCE=1" in warning


def test_a_run_on_some_of_the_same_hosts_is_the_same_machine() -> None:
    two = record(config(gpus=2), world_changes={"hostnames": ("node1", "node2"), "nodes": 2})
    assert mixtures([ONE, two]) == []


def test_a_device_that_names_its_cores_is_not_told_twice() -> None:
    ((line, _),) = machines([record(world_changes={"device": "CPU X, 2 cores per rank"})])
    assert line.startswith("CPU X, 2 cores per rank, 1 node, ")


def test_machines_name_gpus_and_nodes() -> None:
    world = {
        "device_kind": "gpu", "device": "NVIDIA H100", "nodes": 2, "data_plane": "nccl",
        "controller": "mpi", "launcher": "srun",
    }  # fmt: skip
    assert machines([record(world_changes=world)]) == [
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
    rows = [row[1:] for row in provenance_rows(items) if row[0] == "git commit"]
    assert rows == [("a", 2), ("b", 2), ("c", 1)]
