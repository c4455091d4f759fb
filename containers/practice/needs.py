"""What a machine must have to play a cluster, looked at all at once before anything is made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from apptainer import FUSE, install_packages
from build.mirrors import debian_codename, os_release
from locks import SetupError
from runner import run

from .spaces import UNSHARE

#: program -> Debian package, needed always
PACKAGES = {
    "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge",
    "ip": "iproute2", "unshare": "util-linux", "setpriv": "util-linux", "hostname": "hostname",
}  # fmt: skip
#: library, in the folder of this machine's kind -> Debian package; Slurm's plugin opens the link
#: that only the development package has (seen: 22.05.8-4+deb12u3, "can not load PMIx library")
LIBRARIES = {"libpmix.so.2": "libpmix2", "pmix2/lib/libpmix.so": "libpmix-dev"}
#: What the cluster is made of, tried in namespaces that end with the trial.
TRIAL = [
    *UNSHARE, "sh", "-ec",
    "ip link add br0 type bridge; ip link add eth0 type veth peer name eth1; "
    "ip link set eth0 master br0; mount -t tmpfs -o dev none /mnt; mknod /mnt/gpu0 c 1 3",
]  # fmt: skip
#: Apptainer as a user, without being set-uid
USER_NAMESPACES = [
    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--",
    "unshare", "--user", "--map-root-user", "true",
]  # fmt: skip

#: Runs a command for which no package starts its service: the programs that packages start them
#: with do nothing. The mounts are seen by that command alone, and end with it, even by SIGKILL; a
#: file for Debian's policy would stay.
NO_SERVICES = [
    "unshare", "--mount", "--propagation", "private", "--", "sh", "-ec",
    "for program in /usr/sbin/invoke-rc.d /usr/bin/deb-systemd-invoke; do "
    '[ ! -e "$program" ] || mount --bind /usr/bin/true "$program"; done; exec "$@"', "sh",
]  # fmt: skip


def missing_packages(which: Callable[[str], str | None] = shutil.which) -> list[str]:
    missing = [package for program, package in PACKAGES.items() if which(program) is None]
    missing += [
        package
        for file, package in LIBRARIES.items()
        if not any(Path("/usr/lib").glob(f"*/{file}"))
    ]
    return list(dict.fromkeys(missing))


def troubles() -> list[str]:
    """Everything that is missing and that we cannot install, each with what was found."""
    if debian_codename() in ("", "buster", "bullseye"):
        found = os_release().get("PRETTY_NAME", "a system without /etc/os-release")
        return [f"Debian 12 or later (found: {found}): its Slurm packages are what was tried"]
    if os.geteuid() != 0:
        return [f"root (found: user id {os.geteuid()}): run it with sudo or as root"]
    missing = []
    for what, command in (
        ("namespaces, mounts, network bridges and veth links, device nodes (CAP_SYS_ADMIN, "
         "CAP_NET_ADMIN, CAP_MKNOD, kernel modules bridge and veth)", TRIAL),
        ("user namespaces for unprivileged users, for Apptainer (sysctl "
         "kernel.unprivileged_userns_clone=1, user.max_user_namespaces, "
         "kernel.apparmor_restrict_unprivileged_userns=0)", USER_NAMESPACES),
    ):  # fmt: skip
        try:
            # a package that we install may be missing: tried again when it is there
            if all(map(shutil.which, ("ip", "unshare", "setpriv"))):
                run(command, "that")
        except SetupError as error:
            missing.append(f"{what} (found: {error})")
    if not FUSE.exists():
        missing.append(f"{FUSE}, with which users mount images (modprobe fuse)")
    return missing


def check() -> None:
    """Raises: SetupError: with all that is missing, one line each."""
    if found := troubles():
        lines = "\n".join(f"  - {trouble}" for trouble in found)
        raise SetupError(f"this machine cannot play a cluster. Missing:\n{lines}")


def install(packages: list[str], env: Mapping[str, str]) -> None:
    """Install Debian packages without letting them start their services."""
    install_packages(packages, env, NO_SERVICES)
