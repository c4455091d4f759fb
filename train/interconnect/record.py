"""The records of an interconnect run: what its phases leave in results/interconnect/<run>/."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from train.config.frozen import Frozen

TOURNAMENT_NAME = "tournament.json"
JOB_NAME = "job.json"
#: Node -> leaf switch, for the tournament; an empty object where none is known.
SWITCHES_NAME = "switches.json"


#: More nodes than ALL_PAIRS meet so many partners only, drawn at random.
ALL_PAIRS, PARTNERS = 128, 8
#: More suspects than these are a matter of what they share; the slowest are tested again, so many
#: of nodes and uplinks, and as many links within leaf switches and across them.
RETESTED = 8
#: With fewer partners a side could not be told from the other end.
LEAST = 3
#: Pairs in company must keep this share of their rate alone, or fewer run at the same time.
TOGETHER = 0.93
#: An end that computes for more than this share of the time is what limits the rate.
BUSY = 0.85
#: unsure: slow again, by no more than repeated samples scatter.
Outcome = Literal["confirmed", "unsure", "recovered", "cpu", "unreachable"]
#: A node's own program started and ended with an error of its node.
GAVE_UP = "gave up"
#: It started and did not find the others: too late, or the way to them is broken.
NOT_MET = "not met"
#: Exit codes of a node's program in the tournament.
EXIT_WRONG, EXIT_TOO_FEW, EXIT_NOT_MET = 2, 3, 4
Phase = Literal["preflight", "collectives", "tournament"]
PHASES: tuple[Phase, ...] = ("preflight", "collectives", "tournament")
Kind = Literal["node", "send", "receive", "link", "uplink", "uplink-send", "uplink-receive"]


class Node(Frozen):
    """One agent: its host, and the interface and address that its data goes through."""

    name: str
    interface: str
    address: str


class End(Frozen):
    """What one end of a measurement saw. Seconds; bytes through the interface, headers included."""

    cpu_s: float
    waited_s: float | None  # ready, but without a core
    wall_s: float
    received_bytes: int | None  # null: the counters could not be read
    sent_bytes: int | None

    @property
    def is_busy(self) -> bool:
        return self.cpu_s > BUSY * self.wall_s


class Tcp(Frozen):
    path_mtu: int
    rtt_s: float
    min_rtt_s: float
    retransmitted: int
    busy_s: float
    rwnd_limited_s: float
    sndbuf_limited_s: float


class Measurement(Frozen):
    """One direction of one pair, once. rates: bit/s. error: why there are none."""

    sender: str
    receiver: str
    phase: str  # noise, uplinks (all of a leaf at once), tournament, retest
    together: int  # pairs that were measured at the same time
    rates: tuple[float, ...] = ()
    bytes: int = 0
    wrong_bytes: int = 0
    latency_s: float | None = None
    latency_min_s: float | None = None
    at_sender: End | None = None
    at_receiver: End | None = None
    tcp: Tcp | None = None
    error: str | None = None


class Noise(Frozen):
    """What the machine itself does to measurements. cv: of one pair's repeated samples, robust.
    together: rate of pairs in full company over their rate alone, the lowest of those tried."""

    pair: tuple[str, str]
    cv: float
    together: float | None


class Retest(Frozen):
    """A suspect alone with others. ratio: to healthy pairs that were alone, too, with its best
    partner, of its slowest direction. waited: share of the time for which an end of it had no core,
    the largest, less what healthy pairs had to wait; 1 where an end computed all the time."""

    nodes: tuple[str, ...]
    kind: Kind  # what is left of the suspicion
    partners: tuple[str, ...]
    ratio: float | None
    waited: float | None
    outcome: Outcome
    why: str


class Clock(Frozen):
    """Of a node against the first one's, seconds; right within half of the fastest answer's way."""

    ahead_s: float
    within_s: float


class Calibrated(Frozen):
    """Of ``trials`` simulated networks of as many nodes and as much noise as this one, one node at
    ``share`` of the rate (1: none is slow). named: it and nobody else. wrong: somebody else."""

    share: float
    trials: int
    named: int
    wrong: int


class Tournament(Frozen):
    """company: pairs that ran at the same time at most. streams: connections of each pair. cut: why
    not all rounds were measured."""

    schema_version: int = Field(1, ge=1, le=1)
    started_at: AwareDatetime
    seconds: float
    nodes: tuple[Node, ...]
    lost: dict[str, str]  # node -> why
    noise: Noise | None
    company: int
    streams: int = 1
    cut: str | None = None
    measurements: tuple[Measurement, ...]
    decision: Decision
    retests: tuple[Retest, ...]
    calibrated: tuple[Calibrated, ...] = ()  # in records of earlier versions
    # node -> leaf switch, as far as Slurm knows them
    switches: dict[str, str] = Field(default_factory=dict)
    clocks: dict[str, Clock] = Field(default_factory=dict)  # node -> its clock


class Trouble(Frozen):
    """Why a node took no part, as srun, the container or the node's program said it; node "?" where
    they do not say. what: container, launch, node, memory, GAVE_UP or NOT_MET."""

    node: str
    what: str
    found: str


class Step(Frozen):
    """How a phase ended. exit_code: srun's; stopped: what ended it before its end."""

    phase: Phase
    seconds: float
    exit_code: int | None
    stopped: str | None
    troubles: tuple[Trouble, ...]


class JobNote(Frozen):
    """The job that measures, and its phases in order; logs of each are in logs/PHASE/. Written at
    its start and after each phase; ended: it lived to write the last one."""

    schema_version: int = Field(1, ge=1, le=1)
    job: str
    nodes: str  # as Slurm writes them: node[1-4]
    image: str
    image_digest: str | None
    steps: tuple[Step, ...]
    phases: tuple[Phase, ...] = ()  # that were asked for
    expected: tuple[str, ...] = ()  # nodes that were to take part; none: Slurm did not tell
    ended: bool = True


class Suspect(Frozen):
    """nodes: one, or sender and receiver of a link; of an uplink the leaf switch, or two of them.
    ratio: to the peers' median, or for a link to what its ends can do; None where nothing came
    through at all."""

    kind: Kind
    nodes: tuple[str, ...]
    ratio: float | None
    deviations: float | None
    slow: int  # partners with whom it is slow, or fails
    partners: int
    why: str  # the rule that fired


class Decision(Frozen):
    """across: what pairs across leaf switches reach of those within; None: not known.
    middle: bit/s, the median side. visible: a side below this share of it would be a suspect;
    visible_links: a link, below this share of what others reach of their ends' rates;
    visible_across: of those across leaves, below this share of what is usual within them.
    visible_uplinks: an uplink, below this share of the others; None: none was compared. crossing:
    what whole leaves reach of each other at once, of what their nodes reach within them."""

    suspects: tuple[Suspect, ...]
    undecided: str | None
    middle: float | None
    visible: float | None
    across: float | None = None
    visible_links: float | None = None
    visible_across: float | None = None
    visible_uplinks: float | None = None
    crossing: float | None = None
