"""array_parallel holds for a sweep, over all of its arrays: on a Slurm that is a few lines here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cell.state import CellState
from jobs.config.site import Site
from jobs.slurm import submitter as submitting
from jobs.slurm import throttle as module
from jobs.slurm.client import run as client
from jobs.slurm.client.run import Answer, SlurmError
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import UNCLEAR, Array, RunNote, shares
from jobs.slurm.submitter import Submitter
from tests.builders import config
from tests.jobs.slurm.fakes import context, note
from train.config.run import RunConfig


class Cluster:
    """Arrays, each with its throttle, whose elements run and end."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, nodes: int = 10**6) -> None:
        self.folder, self.nodes = folder, nodes
        self.notes: list[RunNote] = []
        self.limits: dict[str, int] = {}
        self.elements: dict[str, list[str]] = {}
        self.away = False  # it answers no question
        self.refuses = False  # it answers with an error
        self.bare = False  # it lists a waiting element, which has no throttle (requeued)
        self.asked: list[str] = []  # arrays whose throttles were asked for
        self.updates: list[str] = []
        self.refusals: list[SlurmError | None] = []
        patch.setattr(submitting, "submit_cells", self.submit)
        patch.setattr(module, "run", self.answer)
        patch.setattr(client, "run", self.answer)

    def submit(self, _context, array: Array, *_) -> str:
        if self.refusals and (error := self.refusals.pop(0)):
            error.refused = True
            raise error
        job = str(100 + len(self.notes))
        noted = array.model_copy(update={"job_id": job})
        self.notes.append(note(*array.cells, run=f"r{job}").model_copy(update={"arrays": (noted,)}))
        self.limits[job] = array.parallel
        self.elements[job] = ["PENDING"] * len(array.cells)
        return job

    def answer(self, argv: Sequence[str], **_: float) -> Answer:
        if self.away:
            raise SlurmError(argv[0], "Unable to contact slurm controller", passing=True)
        if argv[0] == "scontrol":
            job, limit = (word.partition("=")[2] for word in argv[2:])
            self.updates.append(f"{job} {limit}")
            self.limits[job] = int(limit)
            ended = "COMPLETED" in self.elements[job]
            said = f"{job}_0-2: Job has already finished\n{job}_3-9: No error\n"  # 22.05.8
            return Answer(1, "", said) if ended else Answer(0, "", "")
        if self.refuses:
            return Answer(1, "", "slurm_load_jobs error: Invalid job id specified")
        asked = argv[-1].removeprefix("--jobs=").split(",")
        self.asked += asked
        if self.bare:
            return Answer(0, "".join(f"{job} 3\n" for job in asked), "")
        left = [job for job in asked if "PENDING" in self.elements[job]]
        return Answer(0, "".join(f"{job} 0-9%{self.limits[job]}\n" for job in left), "")

    @property
    def queue(self) -> dict[str, JobState]:
        return {
            f"{job}_{place}" if len(states) > 1 else job: JobState(f"{job}_{place}", state)
            for job, states in self.elements.items()
            for place, state in enumerate(states)
        }

    def unended(self) -> dict[str, RunConfig]:
        return {
            name: config()
            for noted in self.notes
            for array in noted.arrays
            for name, state in zip(
                array.cells, self.elements.get(array.job_id or "", ()), strict=False
            )
            if state != "COMPLETED"
        }

    def running(self, job: str | None = None) -> int:
        found = [self.elements[job]] if job else self.elements.values()
        return sum(states.count("RUNNING") for states in found)

    def start(self) -> None:
        """All that may."""
        for job, states in self.elements.items():
            for place, state in enumerate(states):
                free = self.running(job) < self.limits[job] and self.running() < self.nodes
                if state == "PENDING" and (free or len(states) == 1):
                    states[place] = "RUNNING"

    def end(self, count: int, seed: int = 0) -> None:
        running = [
            (job, place)
            for job, states in self.elements.items()
            for place, state in enumerate(states)
            if state == "RUNNING"
        ]
        for job, place in Random(seed).sample(running, min(count, len(running))):
            self.elements[job][place] = "COMPLETED"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    return Cluster(monkeypatch, tmp_path)


def sweep(
    cluster: Cluster, sizes: dict[int, int], most: int = 8, *, watched: bool = True,
    **site: int,
) -> Submitter:  # fmt: skip
    """A make sweep with cells of its own. ``sizes``: ranks -> how many cells."""
    first = 1000 * len(cluster.notes)
    counted = [
        (gpus, seed) for gpus, count in sizes.items() for seed in range(first, first + count)
    ]
    configs = [config(seed=seed, gpus=gpus) for gpus, seed in counted]
    todo = [CellState(one, cluster.folder / one.cell_id(), "new") for one in configs]
    asked = Site(ranks_per_node=1, array_parallel=most, **site)
    where = context(cluster.folder, asked)
    return Submitter(where, todo, False, list(cluster.notes), watched=watched)


def turn(
    cluster: Cluster, sweep: Submitter, queue: dict[str, JobState] | None = None
) -> list[RunConfig]:
    """The cells that it submits. ``queue``: what Slurm shows; None: all there is."""
    unended = cluster.unended()
    before = len(unended)
    sweep.more(cluster.queue if queue is None else queue, list(cluster.notes), unended)
    return list(unended.values())[before:]


def anothers(cluster: Cluster) -> dict[str, JobState]:
    """The queue of a cluster where the same ids are of other jobs."""
    return {job: replace(state, comment="horoscale:r9:0") for job, state in cluster.queue.items()}


@given(st.integers(1, 100), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_shares(most: int, sizes: list[int]) -> None:
    named = {str(place): size for place, size in enumerate(sizes)}
    split = shares(most, named)
    assert all(1 <= split[name] <= size for name, size in named.items())
    assert sum(split.values()) <= max(most, len(sizes))
    if len(sizes) <= most:
        assert sum(split.values()) == min(most, sum(sizes)), "nothing is left over"


def test_a_sweep_of_four_shapes_runs_no_more_than_one_array(cluster: Cluster) -> None:
    """Seen: four arrays of %8 ran 32 cells."""
    one = sweep(cluster, {1: 20, 2: 20, 3: 20, 4: 20})
    assert len(turn(cluster, one)) == 80
    assert list(cluster.limits.values()) == [2, 2, 2, 2]
    cluster.start()
    assert cluster.running() == 8
    cluster.elements["100"] = ["COMPLETED"] * 20
    turn(cluster, one)
    assert list(cluster.limits.values())[1:] == [3, 3, 2], "its share goes to the others"
    cluster.elements["101"] = ["COMPLETED"] * 18 + ["RUNNING", "PENDING"]
    cluster.elements["102"] = ["COMPLETED"] * 19 + ["RUNNING"]
    turn(cluster, one)
    assert cluster.limits["103"] == 8 - 2 - 1, "those that are nearly over give up what they leave"
    updates = len(cluster.updates)
    turn(cluster, one)
    assert len(cluster.updates) == updates, "nothing has changed"


def test_more_arrays_than_may_run_are_held_back(cluster: Cluster) -> None:
    """An array of %0 would have no limit at all."""
    one = sweep(cluster, {1: 2, 2: 2, 3: 2, 4: 2}, 2)
    assert len(turn(cluster, one)) == 4 and one.waits()
    assert list(cluster.limits.values()) == [1, 1]
    assert turn(cluster, one) == []
    cluster.elements["100"] = ["COMPLETED"] * 2
    assert len(turn(cluster, one)) == 2 and list(cluster.limits.values()) == [1, 1, 1]


def test_without_a_watcher_the_number_is_split_once(cluster: Cluster) -> None:
    """Also over what an earlier make sweep submitted."""
    turn(cluster, sweep(cluster, {1: 20}, watched=False))
    assert list(cluster.limits.values()) == [8]
    turn(cluster, sweep(cluster, {1: 3, 2: 20}, watched=False))
    assert list(cluster.limits.values()) == [3, 3, 2]


def test_a_split_after_a_refusal_counts_what_was_sent(cluster: Cluster) -> None:
    one, words = sweep(cluster, {1: 4, 2: 4, 3: 4}, 2, watched=False), "QOSMaxSubmitJobPerUserLimit"
    cluster.refusals = [None, SlurmError("sbatch", words, passing=False)]
    turn(cluster, one)
    assert list(cluster.limits.values()) == [1, 1]


def test_a_new_layout_gets_a_share_and_a_refill_waits(cluster: Cluster) -> None:
    turn(cluster, sweep(cluster, {1: 100}))
    cluster.start()
    refill = sweep(cluster, {1: 5})
    assert turn(cluster, refill) == [] and cluster.limits == {"100": 8}
    other = sweep(cluster, {2: 20})
    assert turn(cluster, other) == [] and cluster.limits == {"100": 4}
    cluster.end(6)
    cluster.start()
    assert len(turn(cluster, other)) == 20 and cluster.limits == {"100": 4, "101": 4}


def test_an_update_that_fails_ends_nothing_and_is_tried_again(cluster: Cluster) -> None:
    one = sweep(cluster, {1: 20, 2: 20})
    turn(cluster, one)
    turn(cluster, one)
    cluster.elements["100"] = ["COMPLETED"] * 20
    cluster.away = True
    turn(cluster, one)
    turn(cluster, one)
    assert cluster.limits["101"] == 4
    cluster.away = False
    turn(cluster, one)
    assert cluster.limits["101"] == 8


@pytest.mark.parametrize("seed", range(20))
def test_the_number_holds_at_every_moment(cluster: Cluster, seed: int) -> None:
    """Layouts, refills, single jobs, outages of the controller: and all cells run."""
    random = Random(seed)
    most = random.choice([1, 2, 3, 8])
    sizes = {gpus: random.choice([1, 2, 7, 30]) for gpus in range(1, random.randint(2, 6))}
    one = sweep(cluster, sizes, most, submit_limit=random.choice([3, 12, 1000]))
    later = [{9: 3, 1: 2}, {2: 30, 3: 30}]
    for look in range(1000):
        cluster.away = random.random() < 0.2
        if look % 10 == 9 and later and not one.waits():
            one = sweep(cluster, later.pop(), most)  # another make sweep, with further cells
        turn(cluster, one)
        for _ in range(2):
            cluster.start()
            assert cluster.running() <= most
            cluster.end(random.randint(0, most), look)
        if not (later or one.waits()) and all(job.ended for job in cluster.queue.values()):
            break
    assert look < 999 and 0 not in cluster.limits.values()


def test_an_array_with_a_noted_id_may_be_anothers(cluster: Cluster) -> None:
    """After a controller lost its state, or on another cluster: it was updated. Its cells have no
    record yet."""
    one = sweep(cluster, {1: 20, 2: 20})
    turn(cluster, one)
    turn(cluster, one)
    cluster.elements["101"] = ["COMPLETED"] * 20
    turn(cluster, one, anothers(cluster))
    assert cluster.updates == []
    assert turn(cluster, sweep(cluster, {2: 20}), anothers(cluster)) == []
    cluster.elements["100"] = ["COMPLETED"] * 20
    assert len(turn(cluster, sweep(cluster, {2: 20}), anothers(cluster))) == 20


def test_a_list_without_its_jobs_ends_no_array(cluster: Cluster) -> None:
    """Seen: after one empty list of a restarted controller 16 cells ran, and 8 may."""
    one = sweep(cluster, {1: 2, 2: 2, 3: 2, 4: 2}, 2)
    assert len(turn(cluster, one)) == 4
    cluster.start()
    assert turn(cluster, one, {}) == []


@pytest.mark.parametrize("recent", [True, False])
def test_what_sbatch_may_have_accepted_has_a_share(cluster: Cluster, recent: bool) -> None:
    """Seen: sbatch timed out, and the next look gave all of the number to other arrays."""
    cells = [f"of another sweep file {number}" for number in range(8)]
    sent_at = datetime.now(UTC) - (timedelta(0) if recent else UNCLEAR)
    cluster.notes.append(note(*cells, submitted_at=sent_at))
    one = sweep(cluster, {2: 20})
    assert len(turn(cluster, one)) == (0 if recent else 20) and cluster.updates == []


def test_a_refusal_to_show_throttles_is_asked_again(cluster: Cluster) -> None:
    one = sweep(cluster, {1: 20, 2: 20})
    turn(cluster, one)
    cluster.refuses = True
    turn(cluster, one)
    cluster.refuses = False
    cluster.elements["100"] = ["COMPLETED"] * 20
    turn(cluster, one)
    assert cluster.limits["101"] == 8


def test_an_array_that_shows_no_throttle_is_asked_again_when_other_elements_wait(
    cluster: Cluster,
) -> None:
    """Of a requeued element squeue prints no %N. Seen: one more query at each look."""
    one = sweep(cluster, {1: 20})
    turn(cluster, one)
    cluster.elements["100"] = ["COMPLETED"] * 19 + ["PENDING"]
    cluster.bare = True
    for _ in range(3):
        turn(cluster, one)
    assert cluster.asked == ["100"]
    cluster.elements["100"][:1] = ["PENDING"]
    turn(cluster, one)
    assert cluster.asked == ["100"] * 2


def test_cells_that_the_number_holds_back_are_named_once(cluster: Cluster, capsys) -> None:
    """Seen: only after something was submitted."""
    turn(cluster, sweep(cluster, {1: 100}))
    cluster.start()
    capsys.readouterr()
    refill = sweep(cluster, {1: 5})
    turn(cluster, refill)
    turn(cluster, refill)
    assert capsys.readouterr().err.count("5 cells wait for room") == 1
