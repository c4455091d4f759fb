"""Why a job waits, in plain words or by Slurm's own reason; which refusals of sbatch are limits
on jobs in the queue.

A refusal is permanent unless it is known to pass: a request that cannot be granted, tried again
and again, is never granted.
"""

from __future__ import annotations

import re

from jobs.slurm.client.run import Answer
from jobs.slurm.client.squeue import JobState

#: How Slurm's reason, or an unusual state, begins -> what it means, if that is not what Slurm's own
#: word says, or asks for something. The first that fits counts: longer ones come first.
_MEANING: tuple[tuple[str, str], ...] = (
    ("JobArrayTaskLimit", "as many jobs of this array run as it may run at once (array_parallel)"),
    ("JobHeldUser|job requeued in held state|REQUEUE_HOLD|SPECIAL_EXIT|RESV_DEL_HOLD", "it is held "
     "(by a user, after a requeue, or since its reservation is gone): scontrol release {job} lets "
     "it start"),
    ("DependencyNeverSatisfied", "the job that it depends on ended otherwise than asked for, so it "
     "will never start: make cancel, then make sweep again"),
    ("Dependency", "another job has to end first"),
    ("Priority", "other jobs come first"),
    ("Resources", "nodes have to become free first"),
    ("JobHoldMaxRequeue", "it was requeued too often and is held now: read its log, then scancel "
     "{job} and make sweep again"),
    ("launch failed requeued held", "its nodes could not start it, and it is held: tell the site "
     "(prolog or node fault), then scontrol release {job}"),
    ("PartitionTimeLimit|QOSMaxWallDurationPerJob|AssocMaxWallDurationPerJob", "it asks for more "
     "time than the partition, the QoS or the account allows now: lower time_min or max_time_min "
     "in the site file, then scancel --state=PENDING {array} and make sweep again"),
    ("PartitionNodeLimit|BadConstraints", "{reason}: its partition does not have what it asks for "
     "(partition, max_nodes, constraint, GPUs and memory in the site file), or nodes that it needs "
     "are down or drained (sinfo -R lists them)"),
)  # fmt: skip


def in_words(job: JobState) -> str:
    """Why it does not run yet, or what is unusual about its state; '' where it simply runs."""
    usual = job.ended or job.state in ("PENDING", "RUNNING")
    words = [job.reason if job.waits else "", "" if usual else job.state]
    for said in filter(None, words):
        for start, meaning in _MEANING:
            if re.match(start, said):
                return meaning.format(job=job.job, array=job.array, reason=said)
    return next((f"Slurm says: {said}" for said in words if said), "")


#: A limit on jobs in the queue, by Slurm's names: passes for a smaller array, or when jobs have
#: ended. Other words are those of a site, and may speak of anything.
_SUBMIT_LIMIT = re.compile(r"\b(?:(?:QOS|Assoc)\w*SubmitJob|MaxSubmitJobs)\w*")
#: Slurm ends with this whatever the limit; as a rule the limit's name stands before it.
_ANY_LIMIT = "Job violates accounting/QOS policy"
_LIMIT_NAME = re.compile(r"\b(?:QOS|Assoc|Max)[A-Z]\w+")
#: Slurm's name of a limit, or one word of a site.
_NAME_LINE = re.compile(r".*\bsbatch[\w.-]*: error: (\w+)")


def refusal_in(answer: Answer) -> str:
    """Slurm's own words for a refusal of sbatch: the text that it ends with, and before it the name
    of the limit; '' where it printed none."""
    cause = answer.causes[-1] if answer.causes else ""
    if cause.startswith(_ANY_LIMIT):
        names = filter(None, (_NAME_LINE.fullmatch(line) for line in answer.lines))
        return " ".join([*(found[1] for found in names), cause])
    return cause


def is_submit_limit(refusal: str) -> bool:
    """Whether the user has, or would have, more jobs in the queue than allowed."""
    return _SUBMIT_LIMIT.search(refusal) is not None


def is_unnamed_limit(refusal: str) -> bool:
    """Whether it may be such a limit, or one on the size or time of a job."""
    return _ANY_LIMIT in refusal and not _LIMIT_NAME.search(refusal)


def is_group_limit(refusal: str) -> bool:
    """Whether other users' jobs count, too, and may fill it alone."""
    return "Grp" in refusal or "PerAccount" in refusal


def is_dependency(refusal: str) -> bool:
    """Whether the job that was to end first is not known any more."""
    return "Job dependency problem" in refusal
