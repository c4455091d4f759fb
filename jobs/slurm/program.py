"""A sweep on a cluster, from the login node: checked, submitted, followed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.datafacts import train_images
from jobs.ledger import FORCED, Standing, lay_out, manifest_of
from jobs.lock import only_sweep
from jobs.options import EXIT_INTERRUPTED, NoAnswer, say
from jobs.plan import plan_rows
from jobs.sites import AUTO, LOCAL, NamedSite, load_site
from jobs.slurm.check import check_site
from jobs.slurm.commands import SlurmError, ask
from jobs.slurm.display import display_for
from jobs.slurm.follow import Left, Watcher, follow
from jobs.slurm.gate import hold_by_preflight, largest
from jobs.slurm.image import find_image
from jobs.slurm.inventory import Place
from jobs.slurm.notes import adopt, read_notes, write_note
from jobs.slurm.queue import JobState
from jobs.slurm.script import check_path
from jobs.slurm.send import Sending, plan_arrays, send
from jobs.slurm.shape import shape_of
from jobs.standing import say_results, say_standing
from jobs.stop import stopped_by_signals
from jobs.supervisor import ROOT
from jobs.sweep import Sweep
from train.config import RunConfig
from train.source import git_state

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Wish:
    """What the user asked for."""

    wanted: Sweep
    results: Path
    data: Path
    store: Path
    site: NamedSite
    pack: int = 1
    budget: float | None = None
    stall_s: float = 300.0

    @property
    def folder(self) -> Path:
        return self.results / self.wanted.name


def site_for(name: str) -> NamedSite | None:
    """The site that SITE= names; None for this machine.

    Raises:
        ConfigError: no such site, or an error in its file.
    """
    if name == LOCAL:
        return None
    if name == AUTO:
        return None
    return load_site(name)


def sweep(wish: Wish, *, force: bool, wait: bool, preflight: bool) -> int:
    """Submit every cell that has no good record and no job, and wait for all; the exit code.

    Raises:
        ConfigError: the request does not fit the site or the cluster; nothing was submitted.
        NoAnswer: Slurm does not answer.
    """
    enter(wish)
    with only_sweep(wish.folder):
        try:
            return _sweep(wish, force=force, wait=wait, preflight=preflight)
        except SlurmError as error:
            raise NoAnswer(
                f"Slurm gives no answer, or a refusal: {error}. What was submitted before goes on; "
                "make sweep again submits the rest, make status shows both"
            ) from error


def enter(wish: Wish) -> None:
    """Root's request goes on as the practice cluster's user, after what only root can do."""
    user = wish.site.site.user
    if user is None or os.geteuid() != 0:
        return
    train_images(wish.wanted.configs, wish.data, wish.store)
    wish.folder.mkdir(parents=True, exist_ok=True)
    for path in (wish.folder, *wish.folder.rglob("*")):
        shutil.chown(path, user, user)
    become()


def become() -> None:
    """Run this very command once more, on the practice cluster's login node; does not return."""
    argv = [sys.executable, str(ROOT / "containers" / "practice"), "login", "--"]
    argv += [sys.executable, "-m", "jobs", *sys.argv[1:]]
    os.chdir(ROOT)
    os.execv(sys.executable, argv)  # noqa: S606


def _sweep(wish: Wish, *, force: bool, wait: bool, preflight: bool) -> int:
    configs = wish.wanted.configs
    sending = prepare(wish)
    images = train_images(configs, wish.data, wish.store)
    plan_rows(configs, images, {})
    shapes = [shape_of(config.gpus, sending.site) for config in configs]
    for remark in check_site(sending.site, shapes, asker(sending.site.slurm_conf)):
        say(remark)
    lay_out(configs, wish.folder, manifest_of(wish.wanted))
    watcher = Watcher(wish.folder, sending.job_name, sending.site.slurm_conf)
    queue = watcher.queue(PATIENCE_S)
    adopt_lost(wish.folder, queue)
    places = watcher.look(configs, queue)
    cells = [_forced(place) if force else place.standing for place in places]
    say_standing(wish.wanted, [c for c, p in zip(cells, places, strict=True) if not p.alive])
    todo = [c for c, p in zip(cells, places, strict=True) if not c.done and not p.alive]
    alive = [place for place in places if place.alive]
    if alive:
        say(f"{len(alive)} cells are in the queue already: not submitted again")
    if not todo and not alive:
        return 0
    submitter = Submitter(sending, todo, preflight=preflight)
    sent = submitter.more(sum(not state.ended for state in queue.values()))
    if not wait:
        say("the jobs go on without you: make status shows them, make report when they are done")
        return 0
    followed = [place.standing.config for place in alive] + sent
    return _follow(cells, followed, submitter, watcher)


def prepare(wish: Wish) -> Sending:
    """Everything that the jobs share, checked.

    Raises:
        ConfigError: no image, or a folder that a batch script cannot name.
    """
    site = wish.site.site
    named = (
        (ROOT, "the checkout"),
        (wish.folder, "the results folder"),
        (wish.data.resolve(), "the data folder"),
        (wish.store.resolve(), "the data store"),
    )
    for path, what in named:
        check_path(path, what)
    commit, dirty = git_state(ROOT)
    return Sending(
        sweep=wish.wanted.name, folder=wish.folder, site_name=wish.site.name, site=site,
        image=find_image(site, ROOT), root=ROOT, data=wish.data.resolve(),
        store=wish.store.resolve(), stall_s=wish.stall_s, pack=wish.pack,
        git_commit=commit, git_dirty=dirty,
    )  # fmt: skip


def asker(slurm_conf: str | None):  # type: ignore[no-untyped-def]
    def question(argv: Sequence[str]) -> str:
        answer = ask(argv, patience_s=PATIENCE_S, slurm_conf=slurm_conf)
        if answer.code != 0:
            raise SlurmError(" ".join(argv), answer.words, passing=False)
        return answer.out

    return question


def adopt_lost(folder: Path, queue: dict[str, JobState]) -> None:
    """Job ids that nobody lived to write down."""
    notes, broken = read_notes(folder)
    for text in broken:
        say(text)
    for note in notes:
        found, unclear = adopt(note, queue, notes)
        for text in unclear:
            say(text)
        if found != note:
            write_note(folder, found)


def _forced(place: Place) -> Standing:
    cell = place.standing
    return replace(cell, status=FORCED) if cell.done and not place.alive else cell


@dataclass
class Submitter:
    """Submits what is to run, as far as the site's limit allows; the rest when there is room."""

    sending: Sending
    todo: list[Standing]
    preflight: bool

    def more(self, alive: int) -> list[RunConfig]:
        """``alive``: our jobs in the queue. Returns the cells that were submitted."""
        if not self.todo:
            return []
        limit = self.sending.site.submit_limit
        # alone in the queue, even the smallest limit has room for one
        room = None if limit is None else max(limit - alive - 1, int(alive == 0))
        if room == 0:
            return []
        first = (
            hold_by_preflight(self.sending, largest(plan_arrays(self.sending, self.todo)))
            if self.preflight
            else None
        )
        note, later = send(self.sending, self.todo, room, first)
        waiting = set(later)
        sent = [cell for cell in self.todo if cell.config.cell_id() not in waiting]
        self.todo = [cell for cell in self.todo if cell.config.cell_id() in waiting]
        jobs = ", ".join(str(array.job_id) for array in note.arrays)
        say(f"submitted {len(sent)} cells in {len(note.arrays)} sbatch calls (jobs {jobs})")
        if waiting:
            say(f"{len(waiting)} cells wait for room in the queue (submit_limit {limit})")
        return [cell.config for cell in sent]


def _follow(
    cells: Sequence[Standing], configs: Sequence[RunConfig], submitter: Submitter, watcher: Watcher
) -> int:
    with stopped_by_signals() as stop, display_for(cells) as display:
        try:
            results = follow(watcher, configs, display, stop, submitter.more)
        except Left as error:
            say(f"left ({error}): the jobs go on; make sweep or make status comes back to them, "
                "make cancel ends them")  # fmt: skip
            return EXIT_INTERRUPTED
    return say_results(cells, results)
