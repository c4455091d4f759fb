"""Every file in the cluster's folder, and its text, made from the place and the shape. Keys and
states are closed to users."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import stat
from dataclasses import asdict

from locks import SetupError
from runner import run

from .place import CONTROLLER, CONTROLLER_PORT, CPUS, GPUS, NODE_PORT, SPACES, Place, Shape
from .spaces import make_folders

GPU_TYPE = "pretend"
#: Nothing is limited by cgroups here, and this plugin is the one that then touches none. It starts
#: on machines with cgroups of either version, or without any (all three were tried).
CGROUP_CONF = "CgroupPlugin=cgroup/v1\n"
REQUEUE_WAIT_S = 15  # how long a requeued job waits before it may start again
GRACE_S = 10  # between a preemption's warning and its end
KILL_WAIT_S = 10
NODE_TIMEOUT_S = 15  # without a sign of life a node is down


def slurm_conf(place: Place, shape: Shape) -> str:
    names = ",".join(node.name for node in shape.nodes)
    nodes = "\n".join(
        f"NodeName={node.name} NodeAddr={node.address} NodeHostname={node.name} CPUs={CPUS} "
        f"Sockets=1 CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory={node.memory_mb} "
        f"Gres=gpu:{GPU_TYPE}:{GPUS} State=UNKNOWN"
        for node in shape.nodes
    )
    memory = min(node.memory_mb for node in shape.nodes) // CPUS
    return f"""\
# Horoscale's practice cluster; written by `make cluster`, gone with `make cluster-down`
ClusterName=practice
SlurmctldHost={CONTROLLER}({shape.controller})
SlurmctldPort={CONTROLLER_PORT}
SlurmdPort={NODE_PORT}
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# cred_expire is also the time that a requeued job waits; the default is two minutes
AuthInfo=socket={place.munge_socket},cred_expire={REQUEUE_WAIT_S}
StateSaveLocation={place.folder}/state
SlurmdSpoolDir={place.folder}/%n/spool
SlurmctldPidFile={place.pid_file(CONTROLLER, "slurmctld")}
SlurmdPidFile={place.pids}/slurmd-%n.pid
SlurmctldLogFile={place.log}/slurmctld.log
SlurmdLogFile={place.folder}/%n/slurmd.log
SlurmctldDebug=info
SlurmdDebug=info
MailProg=/bin/true

# one machine plays all nodes: it has less than they advertise
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout={NODE_TIMEOUT_S}
SlurmctldTimeout=30
InactiveLimit=0
KillWait={KILL_WAIT_S}
MinJobAge=300
MaxArraySize=1001
JobRequeue=1
EnforcePartLimits=ALL

# a job that uses more memory than it asked for is killed when that is next looked at
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU={memory}
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
# jobs start within a second or two
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0

# a job in urgent takes its nodes from jobs in practice, which are warned and requeued
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal

GresTypes=gpu
{nodes}
PartitionName=practice Nodes={names} Default=YES State=UP PriorityTier=1 PreemptMode=REQUEUE \
GraceTime={GRACE_S} DefaultTime=30 MaxTime=1440
PartitionName=urgent Nodes={names} State=UP PriorityTier=10 PreemptMode=OFF \
DefaultTime=30 MaxTime=1440
"""


def gres_conf(place: Place) -> str:
    files = f"{place.folder}/dev/gpu[0-{GPUS - 1}]"
    return f"AutoDetect=off\nName=gpu Type={GPU_TYPE} File={files}\n"


def hosts(shape: Shape, login: str) -> str:
    """/etc/hosts of all nodes; ``login``: the host name of the machine itself."""
    lines = ["127.0.0.1\tlocalhost", f"{shape.login}\t{login}", f"{shape.controller}\t{CONTROLLER}"]
    return "\n".join([*lines, *(f"{node.address}\t{node.name}" for node in shape.nodes), ""])


def write(place: Place, shape: Shape) -> None:
    """Mount the folder and fill it. Raises SetupError where that cannot be."""
    before = os.umask(0o022)  # whatever root's own is: users must be able to read it
    try:
        _mount(place)
        _write(place, shape)
    finally:
        os.umask(before)


def _mount(place: Place) -> None:
    place.folder.mkdir(parents=True, exist_ok=True)
    if any(place.folder.iterdir()):
        raise SetupError(
            f"{place.folder} holds files that are not this cluster's: look at them and remove the "
            "folder, or name another one with HOROSCALE_PRACTICE"
        )
    # /run is often mounted noexec and nodev: batch scripts and devices need their own
    options = "mode=755,exec,dev,nosuid"
    run(["mount", "-t", "tmpfs", "-o", options, "horoscale", str(place.folder)])


def _write(place: Place, shape: Shape) -> None:
    private = place.munge / "private"
    folders = {
        place.log: ("slurm", 0o755), place.folder / "state": ("slurm", 0o700),
        place.munge: ("munge", 0o755), private: ("munge", 0o700),
    }  # fmt: skip
    for folder in (place.pids, place.folder / "dev", *folders):
        folder.mkdir()
    for space in SPACES:
        make_folders(place, space)
    for number in range(GPUS):  # they answer like /dev/null: enough to be found and handed out
        device = place.folder / "dev" / f"gpu{number}"
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.chmod(0o666)
    key = private / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    shutil.chown(key, "munge", "munge")
    place.hosts.write_text(hosts(shape, socket.gethostname()))
    (place.folder / "gres.conf").write_text(gres_conf(place))
    (place.folder / "cgroup.conf").write_text(CGROUP_CONF)
    place.slurm_conf.write_text(slurm_conf(place, shape))
    for folder, (owner, mode) in folders.items():  # last: nothing is written in another's folder
        folder.chmod(mode)
        shutil.chown(folder, owner, owner)
    place.state.write_text(json.dumps(asdict(shape), indent=1) + "\n")
