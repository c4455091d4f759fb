"""A sweep on a cluster, from the login node: checked, submitted, followed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from rich.console import Console

from jobs.cell.container import check_path
from jobs.cell.image import Image, find_image
from jobs.cell.lock import local_file_system, only_sweep
from jobs.cell.state import UNREADABLE, Standing, lay_out
from jobs.cell.stop import stopped_by_signals
from jobs.config.site import NamedSite, Site
from jobs.config.sweep import Sweep, manifest_of
from jobs.display import say_results, say_standing
from jobs.messages import EXIT_INTERRUPTED, EXIT_UNDECIDED, ROOT, NoAnswer, say
from jobs.plan.cost import check_budget
from jobs.plan.datasets import train_images
from jobs.plan.estimate import known_rates
from jobs.plan.rows import plan_rows
from jobs.slurm.arrays import Array
from jobs.slurm.board import Board, LiveBoard, PlainBoard
from jobs.slurm.client.reasons import advice
from jobs.slurm.client.run import SCONTROL, SlurmError, asker, read_config
from jobs.slurm.client.site import check_site
from jobs.slurm.client.user import hand_over, is_anothers
from jobs.slurm.job.task import PREFLIGHT
from jobs.slurm.reconcile import Place, elsewhere, refuse_unreadable, unclear_in
from jobs.slurm.script import freeze
from jobs.slurm.submissions import SubmissionContext, read_notes
from jobs.slurm.submit import plan_arrays
from jobs.slurm.submitter import Submitter
from jobs.slurm.watch import Left, Pace, Watcher, follow
from train.config.datasets import FOLDER_PREFIX
from train.config.run import RunConfig
from train.distributed.watchdog import STALL_S
from train.errors import ConfigError
from train.run.provenance import git_state

PATIENCE_S = 60.0


@dataclass(frozen=True)
class SweepRequest:
    """What the user asked for."""

    wanted: Sweep
    results: Path
    data: Path
    store: Path
    site: NamedSite
    pack: int = 1
    budget: float | None = None
    stall_s: float = STALL_S

    @property
    def folder(self) -> Path:
        return self.results / self.wanted.name


def sweep_cluster(wish: SweepRequest, *, force: bool, wait: bool, preflight: bool) -> int:
    """Submit every cell that has no good record and no job, and wait for all; the exit code.

    Raises:
        ConfigError: the request does not fit the site or the cluster; nothing was submitted.
        NoAnswer: Slurm does not answer.
    """
    enter(wish)
    with only_sweep(wish.folder), slurm_refusals(wish.site):
        return _sweep(wish, force=force, wait=wait, preflight=preflight)


@contextmanager
def slurm_refusals(site: NamedSite) -> Iterator[None]:
    """Raises ConfigError where sbatch refuses the site's wishes, else NoAnswer."""
    try:
        yield
    except SlurmError as error:
        if error.asked == "sbatch" and not error.passing:
            raise ConfigError(
                f"sbatch refused: {error.came}. {advice(error.came, site.source)}; then submit "
                "again: what was submitted before goes on"
            ) from error
        raise NoAnswer(
            f"Slurm gives no answer, or is busy: {error}. Jobs that were submitted go on; make "
            "sweep again submits the others, and make status shows all"
        ) from error


def enter(wish: SweepRequest) -> None:
    """Root's request goes on as the practice cluster's user, after what only root can do."""
    if not is_anothers(wish.site):
        return
    train_images(wish.wanted.configs, wish.data, wish.store)
    make_data_folders(wish)
    hand_over(wish.site, wish.folder, wish.results / PREFLIGHT)


def make_data_folders(wish: SweepRequest) -> None:
    """A sweep on bundled data leaves none, and containers bind only what is there."""
    for folder in (wish.data, wish.store):
        with suppress(OSError):  # read-only: what is missing there, the preflight tells
            folder.mkdir(parents=True, exist_ok=True)


def _sweep(wish: SweepRequest, *, force: bool, wait: bool, preflight: bool) -> int:
    configs = wish.wanted.configs
    sending = prepare(wish)
    images = train_images(configs, wish.data, wish.store)
    rows = plan_rows(
        configs, images, known_rates(wish.results, configs if wish.budget is not None else ())
    )
    lay_out(configs, wish.folder, manifest_of(wish.wanted), force=force)
    watcher = Watcher(wish.folder, sending.site.slurm_conf)
    notes, broken = read_notes(wish.folder)
    for text in broken.values():
        say(text)
    queue = watcher.queue(PATIENCE_S)
    refuse_unreadable(broken, queue)
    watcher.adopt(notes, queue)
    places = watcher.look(configs, notes, queue)
    cells = [_forced(place) if force else place.standing for place in places]
    todo = [c for c, p in zip(cells, places, strict=True) if c.to_run and not p.alive]
    if todo:
        seconds = {row.cell_id: row.time.seconds for row in rows}
        sending = ready(sending, check_cluster(wish, plan_arrays(sending, todo), seconds))
    say_standing(wish.wanted, [c for c, p in zip(cells, places, strict=True) if not p.alive])
    away = [place for place in places if place.elsewhere]
    for text in dict.fromkeys(place.elsewhere for place in away):
        say(f"not submitted again: {text}")
    cells = [c for c, p in zip(cells, places, strict=True) if not p.elsewhere]
    alive = [place for place in places if place.alive and not place.elsewhere]
    if alive:
        say(f"{len(alive)} cells are in the queue already: not submitted again")
    if not todo and not alive:
        code = 0 if all(cell.done for cell in cells) else say_results(wish.wanted, cells, {})
        return EXIT_UNDECIDED if away and not code else code
    known = [note for note in notes if not elsewhere(note, watcher.history)]
    unclear = unclear_in(wish.folder, known, todo)
    names = {cell.config.cell_id() for one in unclear for cell in one.cells}
    todo = [cell for cell in todo if cell.config.cell_id() not in names]
    submitter = Submitter(sending, todo, preflight=preflight, unclear=unclear)
    try:
        sent = submitter.more(queue)
    except SlurmError as error:
        if not (wait and error.passing):
            raise
        say(f"could not submit: {error.came}: tried again")
        sent = []
    if not wait and submitter.last:
        raise submitter.last
    if not wait and submitter.unclear:
        raise NoAnswer(
            f"{len(names)} cells were submitted a moment ago, and Slurm has not confirmed it: make "
            "sweep again in some minutes"
        )
    if not wait:
        rest = "; make sweep again submits the rest" if submitter.waits() else ""
        say("the jobs go on without you: make status shows them, make report when they are done"
            + rest)  # fmt: skip
        return EXIT_UNDECIDED if any(cell.status == UNREADABLE for cell in cells) else 0
    followed = [place.standing.config for place in alive] + sent
    code = _follow(wish.wanted, cells, followed, submitter, watcher)
    return EXIT_UNDECIDED if away and not code else code


def ready(sending: SubmissionContext, cluster: str | None) -> SubmissionContext:
    """The same with the code that waiting jobs will run, and the cluster that they go to."""
    return replace(sending, root=freeze(ROOT, sending.folder), cluster=cluster)


def check_cluster(
    wish: SweepRequest, arrays: Sequence[Array], seconds: Mapping[str, float | None]
) -> str | None:
    """Returns the cluster's name, where it says.

    Raises:
        ConfigError: the cluster cannot run them, or they cost more than BUDGET.
    """
    site = wish.site.site
    ask = cache(asker(site.slurm_conf))
    minutes = max(array.minutes for array in arrays)
    shapes = [array.shape for array in arrays]
    for remark in check_site(site, shapes, ask, minutes=minutes):
        say(remark)
    if (kind := local_file_system(wish.folder)) and site.user is None:
        say(f"{wish.folder} is on a file system of this machine alone ({kind}): nodes do not see "
            "it, so jobs will fail. Name a shared folder with RESULTS=DIR")  # fmt: skip
    if wish.budget is not None:
        check_budget(wish.budget, arrays, seconds, site)
    return read_config(ask(SCONTROL)).get("ClusterName")


def bounded(site: Site, budget: float | None) -> Site:
    """With a budget no job runs twice: what a cell still needs then, the next sweep asks for."""
    return site if budget is None else site.model_copy(update={"requeue": False})


def prepare(wish: SweepRequest) -> SubmissionContext:
    """Everything that the jobs share, checked.

    Raises:
        ConfigError: no image, or a folder that a batch script cannot name.
    """
    make_data_folders(wish)
    return sending_for(wish, find_image(wish.site.site, ROOT))


def sending_for(wish: SweepRequest, image: Image) -> SubmissionContext:
    """Raises ConfigError where a batch script cannot name a folder."""
    data, store = wish.data.resolve(), wish.store.resolve()
    named = (
        (ROOT, "the checkout"),
        (wish.folder, "the results folder"),
        (data, "the data folder"),
        (store, "the data store"),
    )
    folders = [
        Path(config.dataset.removeprefix(FOLDER_PREFIX)).expanduser().absolute()
        for config in wish.wanted.configs
        if config.dataset.startswith(FOLDER_PREFIX)
    ]
    for path, what in (*named, *((folder, "the data set") for folder in folders)):
        check_path(path, what)
    commit, dirty = git_state(ROOT)
    return SubmissionContext(
        name=wish.wanted.name,
        folder=wish.folder,
        site_name=wish.site.name,
        site=bounded(wish.site.site, wish.budget),
        image=image,
        root=ROOT,
        data=data,
        store=store,
        folders=tuple(dict.fromkeys(map(str, folders))),
        stall_s=wish.stall_s,
        pack=wish.pack,
        git_commit=commit,
        git_dirty=dirty,
    )


def _forced(place: Place) -> Standing:
    return place.standing if place.alive else place.standing.forced()


def _follow(
    wanted: Sweep,
    cells: Sequence[Standing],
    configs: Sequence[RunConfig],
    submitter: Submitter,
    watcher: Watcher,
) -> int:
    board = Board(cells, watcher.notes, wanted.asked)
    console = Console(stderr=True)
    shown = (
        LiveBoard(board, console)
        if console.is_terminal
        else nullcontext(PlainBoard(board, sys.stderr))
    )
    with stopped_by_signals() as stop, shown as display:
        try:
            results = follow(
                watcher, configs, display, stop, submitter.more, submitter.waits,
                Pace(submitter.context.site.poll_s),
            )  # fmt: skip
        except Left as error:
            say(f"left ({error}): the jobs go on; make sweep or make status comes back to them, "
                "make cancel ends them")  # fmt: skip
            return EXIT_INTERRUPTED
    return say_results(wanted, cells, results)
