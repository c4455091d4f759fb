"""Assemble one report from the frames of a sweep: answers, topics, cautions and the exit code."""

from __future__ import annotations

from dataclasses import dataclass

from analysis import fmt
from analysis.page.sections import Parts, Section, written
from analysis.plots.figure import Figure
from analysis.prediction.collectives import Link
from analysis.records.frames import Frames
from analysis.records.labels import short_names
from analysis.table import Table
from analysis.topics.cells.completeness import Cause, causes
from analysis.topics.topic import Answer, Caution, Sweep

METHODS = (
    "The unit is one run. Means of runs have Student's t intervals (95 %), throughput and ratios "
    "on the logarithm; shares of runs have Clopper and Pearson's. Runs that diverged are in no "
    "mean: their number stands beside it.",
    "Differences are Welch's. One is claimed exactly if its simultaneous interval, Bonferroni's "
    "over a family that the plan of the sweep fixes, excludes 0. A cell without a usable run "
    "counts in the family.",
)

ALL_GOOD, SOME_FAILED, UNDECIDED = 0, 1, 3
#: The first of these figures that there is says what the sweep varies: these are shown.
_FIRST = {
    "efficiency": ("efficiency", "step_parts"),
    "against_reference": ("against_reference", "accuracy_by_batch", "step_parts"),
    "axes": ("axes", "accuracy_by_batch", "step_parts"),
    "steps_by_batch": ("steps_by_batch", "validation_accuracy_in_time"),
}
_OF_ANY = ("accuracy_by_batch", "step_parts", "validation_accuracy")


@dataclass(frozen=True)
class Report:
    """Everything that the page and the terminal show."""

    name: str
    title: str
    context: str  # what is the same for all runs, in one line
    lead: str  # what became of the runs, where every planned cell has one
    answers: tuple[Answer, ...]
    cautions: tuple[Caution, ...]
    topics: tuple[Section, ...]
    frames: Frames
    exit_code: int
    methods: tuple[str, ...] = METHODS

    @property
    def figures(self) -> tuple[Figure, ...]:
        return tuple(figure for topic in self.topics for figure in topic.figures)

    @property
    def first_figures(self) -> tuple[Figure, ...]:
        """The two that the first screen shows, by what the sweep varies."""
        there = {figure.key: figure for figure in self.figures if figure.svg}
        wanted = next((keys for key, keys in _FIRST.items() if key in there), _OF_ANY)
        return tuple(there[key] for key in wanted if key in there)[:2]

    @property
    def causes(self) -> list[Cause]:
        return causes(self.frames.problems)

    @property
    def tables(self) -> dict[str, Table]:
        return {table.key: table for topic in self.topics for table in topic.tables}


def build(frames: Frames, *, network: Link | None = None, draw: bool = True) -> Report:
    """The same folder gives the same report.

    Args:
        network: of an interconnect run of the same nodes.
        draw: with figures, which take seconds.
    """
    of = Sweep(frames, network)
    made = Parts(of)
    tables = made.every("A table", lambda topic: map(written, topic.tables))
    said = made.all_of("An answer", lambda topic: topic.answers)
    cautions = made.all_of("A caution", lambda topic: topic.cautions if len(of.runs) else [])
    figures = made.every("A plot", lambda topic: topic.plots if draw else [])
    topics = [
        Section(
            place.key, place.title, own,
            tuple(figure for figure in figures[place] if figure is not None),
            tuple(made.failures[place]),
        )
        for place, own in tables.items()
    ]  # fmt: skip
    failed = [topic.title for topic in topics if topic.failures]
    if failed:
        text = "Parts of this report could not be made. Their topics say why: "
        cautions.insert(0, Caution(f"{text}{', '.join(failed)}.", "all", is_alarm=True))
    serious = ("all", "accuracy", "times", "none")
    cautions.sort(key=lambda one: (not one.is_alarm, serious.index(one.touches)))
    return Report(
        name=frames.name,
        title=frames.title,
        context=_context(frames),
        lead=_lead(frames),
        answers=tuple(said),
        cautions=tuple(cautions),
        topics=tuple(topic for topic in topics if not topic.is_empty),
        frames=frames,
        exit_code=UNDECIDED if failed else exit_code(frames),
    )


def exit_code(frames: Frames) -> int:
    if not len(frames.runs):
        return UNDECIDED
    return SOME_FAILED if frames.problems else ALL_GOOD


def _lead(frames: Frames) -> str:
    runs = frames.runs
    if frames.problems or not len(runs):
        return ""
    which = {1: "The run", 2: "Both runs"}.get(len(runs), f"All {len(runs):,} runs")
    done = runs[runs["status"] == "completed"]
    diverged = len(runs) - len(done)
    text = f"{which} finished{f', {diverged:,} of them diverged' if diverged else ''}."
    reached = done["validation_accuracy"].dropna()
    on = done[["dataset", "validate_on", "validation_images"]].drop_duplicates()
    if len(on) != 1 or not len(reached):
        return text
    ends = dict.fromkeys(fmt.TWO(end) for end in (reached.min(), reached.max()))
    part = " of the training set" if on["validate_on"].iloc[0] == "train_part" else ""
    images = f"{on['validation_images'].iloc[0]:,} held-out images{part}"
    return f"{text} Accuracy is {' to '.join(ends)} on {images}."


def _context(frames: Frames) -> str:
    """What all runs share, which no table then repeats."""
    runs = frames.runs
    if not len(runs):
        return ""
    ranks = sorted(set(runs["gpus"]))
    what = "GPUs" if set(runs["device_kind"]) == {"gpu"} else "ranks"
    nodes = sorted(set(runs["nodes"]))
    days = sorted({str(text)[:10] for text in runs["started_at"]})
    commits = runs["git_commit"].nunique()
    devices = list(dict.fromkeys(runs["device"]))
    images = sorted(set(runs["train_images"]))
    return fmt.joined(
        [
            ", ".join(short_names(runs["dataset"]).values()),
            f"{images[0]:,} training images" if len(images) == 1 else "",
            ", ".join(short_names(runs["model"]).values()),
            fmt.counted(runs["epochs"].iloc[0], "epoch") if runs["epochs"].nunique() == 1 else "",
            f"{', '.join(map(str, ranks))} {what if ranks != [1] else what[:-1]}",
            f"{nodes[-1]} nodes" if nodes != [1] else "1 node",
            fmt.first_of(devices, 3, "; "),
            f"{commits} commits" if commits > 1 else "",
            days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
        ],
        " · ",
    )
