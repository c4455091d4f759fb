"""Why a job waits, in plain words, and what to do where something can be done."""

from __future__ import annotations

from jobs.slurm.client.squeue import JobState

#: The start of Slurm's reason -> what it means. The first that fits counts: longer ones come first.
_MEANING: tuple[tuple[str, str], ...] = (
    ("JobArrayTaskLimit", "as many jobs of this array run as it may run at once (array_parallel)"),
    ("JobHeldUser", "somebody held it: scontrol release {job} lets it start"),
    ("JobHeldAdmin", "an administrator held it: ask the site"),
    ("DependencyNeverSatisfied", "the job that it depends on ended otherwise than asked for, so it "
     "will never start: make cancel, then make sweep again"),
    ("Dependency", "another job has to end first"),
    ("Priority", "other jobs come first"),
    ("Resources", "nodes have to become free first"),
    ("BeginTime", "it may start only from a set time on; a requeued job waits about 2 minutes"),
    ("JobHoldMaxRequeue", "it was requeued too often and is held now: read its log, then make "
     "cancel and make sweep again"),
    ("launch failed requeued held", "its nodes could not start it, and it is held: tell the site "
     "(prolog or node fault), then scontrol release {job}"),
    ("job requeued in held state", "it was requeued and is held: scontrol release {job} lets it "
     "start"),
    ("ReqNodeNotAvail", "nodes that it needs are down, drained or reserved"),
    ("Nodes required for job are DOWN", "nodes that it needs are down, drained or reserved for "
     "jobs of higher priority"),
    ("Reservation", "its reservation has not begun, or nodes are reserved for maintenance"),
    ("PartitionTimeLimit", "it asks for more time than the partition allows, so it will never "
     "start: lower time_min in the site file, then make cancel and make sweep again"),
    ("PartitionNodeLimit", "it asks for more nodes than the partition allows, so it will never "
     "start: fewer ranks, or another partition in the site file"),
    ("PartitionDown", "the partition takes jobs but starts none now: ask the site"),
    ("PartitionInactive", "the partition is switched off: ask the site, or name another one in "
     "the site file"),
    ("BadConstraints", "no node has what it asks for: look at constraint, GPUs and memory in the "
     "site file, then make cancel and make sweep again"),
    ("NodeDown", "a node that it needs is down"),
    ("Licenses", "a licence that it asks for is not free"),
    ("Prolog", "the nodes are being prepared"),
    ("Cleaning", "it was requeued, and its last start is still being cleaned up"),
    ("AccountNotAllowed", "its account may not use this partition: look at account in the site "
     "file"),
    ("QOSNotAllowed", "its QoS may not be used here: look at qos in the site file"),
    ("QOSMaxJobsPerUser", "as many of your jobs run as the QoS allows"),
    ("QOSMaxSubmitJob", "as many of your jobs are in the queue as the QoS allows"),
    ("QOSMaxWallDurationPerJob", "it asks for more time than the QoS allows, so it will never "
     "start: lower time_min in the site file"),
    ("QOSMaxGRESPerUser", "your jobs use as many GPUs as the QoS allows"),
    ("QOSMaxNodePerUser", "your jobs use as many nodes as the QoS allows"),
    ("QOSMaxCpuPerUser", "your jobs use as many CPUs as the QoS allows"),
    ("QOSGrp", "all jobs of the QoS together use as much as it allows"),
    ("QOSMin", "it asks for less than the QoS wants: look at qos in the site file"),
    ("QOS", "a limit of the QoS"),
    ("MaxGRESPerAccount", "your account uses as many GPUs as it may"),
    ("MaxJobsPerAccount", "as many jobs of your account run as it may run"),
    ("AssocMaxJobs", "as many of your jobs run as your account allows"),
    ("AssocGrpBilling", "the account has used up its budget: ask for more, or name another one"),
    ("AssocGrp", "all jobs of the account together use as much as it may"),
    ("AssocMaxWallDurationPerJob", "it asks for more time than the account allows, so it will "
     "never start: lower time_min in the site file"),
    ("Assoc", "a limit of the account"),
    ("InvalidAccount", "Slurm does not know its account: look at account in the site file"),
    ("InvalidQOS", "Slurm does not know its QoS: look at qos in the site file"),
    ("JobLaunchFailure", "its nodes could not start it: the log of the job, or the site, knows"),
)  # fmt: skip
_STATES = {
    "CONFIGURING": "its nodes are being made ready",
    "REQUEUED": "it is being put back into the queue",
    "REQUEUE_HOLD": "it was requeued and is held: scontrol release {job} lets it start",
    "SPECIAL_EXIT": "it was requeued after a special exit code and is held: scontrol release {job}",
    "RESV_DEL_HOLD": "its reservation is gone, and it is held: scontrol release {job}",
    "SUSPENDED": "suspended: other jobs use its nodes for now",
    "STOPPED": "stopped by a signal: other jobs use its nodes for now",
    "COMPLETING": "it has ended, and its nodes are being cleaned up",
    "STAGE_OUT": "it has ended, and its files are being copied",
}


def in_words(job: JobState) -> str:
    """Why it does not run yet, or what is odd about how it runs; '' where it simply runs."""
    plain = _STATES.get(job.state, "").format(job=job.job)
    if not job.waits or not job.reason:
        return plain or _of_unknown_state(job)
    meaning = next((text for start, text in _MEANING if job.reason.startswith(start)), None)
    if meaning is None:
        return plain or f"Slurm says: {job.reason}"
    # node lists and the like come after a comma
    detail = job.reason.partition(", ")[2] if job.reason.startswith("ReqNodeNotAvail") else ""
    detail = detail.replace("UnavailableNodes:", "")
    return meaning.format(job=job.job) + (f" ({detail})" if detail else "")


def _of_unknown_state(job: JobState) -> str:
    if job.state in ("RUNNING", "PENDING") or job.ended:
        return ""
    return f"Slurm says: {job.state}"
