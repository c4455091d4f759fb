"""What a machine must have to play a cluster, looked at all at once before anything is made."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import apptainer
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
ACCOUNTING_PACKAGES = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server"}
NAMESPACES = [*UNSHARE, "true"]
NETWORK = [
    "unshare", "--net", "sh", "-ec",
    "ip link add br0 type bridge; ip link add eth0 type veth peer name eth1; "
    "ip link set eth0 master br0",
]  # fmt: skip
DEVICES = [
    "unshare", "--mount", "--propagation", "private", "sh", "-ec",
    "mount -t tmpfs -o dev none /mnt; mknod /mnt/gpu0 c 1 3",
]  # fmt: skip
#: Apptainer as a user, without being set-uid
USER_NAMESPACES = [
    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--",
    "unshare", "--user", "--map-root-user", "true",
]  # fmt: skip


def missing_packages(
    *, accounting: bool, which: Callable[[str], str | None] = shutil.which
) -> list[str]:
    programs = PACKAGES | (ACCOUNTING_PACKAGES if accounting else {})
    missing = [package for program, package in programs.items() if which(program) is None]
    missing += [
        package
        for file, package in LIBRARIES.items()
        if not any(Path("/usr/lib").glob(f"*/{file}"))
    ]
    return list(dict.fromkeys(missing))


def release_trouble(text: str) -> str | None:
    """What /etc/os-release tells against this machine."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    found = {name: value.strip('"') for name, value in fields.items()}
    version = found.get("VERSION_ID", "12").split(".")[0]  # testing and unstable have none
    new_enough = version.isdigit() and int(version) >= 12
    if found.get("ID") == "debian" and new_enough:
        return None
    name = found.get("PRETTY_NAME") or "a system without /etc/os-release"
    return f"Debian 12 or later (found: {name}): its Slurm packages are what was tried"


def troubles() -> list[str]:
    """Everything that is missing and that we cannot install, each with what was found."""
    if not sys.platform.startswith("linux"):
        return [f"Linux (found: {sys.platform})"]
    found: list[str | None] = []
    try:
        found.append(release_trouble(Path("/etc/os-release").read_text()))
    except OSError:
        found.append(release_trouble(""))
    if os.geteuid() != 0:
        found.append(f"root (found: user id {os.geteuid()}): run it with sudo or as root")
        return [trouble for trouble in found if trouble]
    found.append(_kernel_trouble("namespaces for mounts, names, network, processes "
                                 "(CAP_SYS_ADMIN)", "unshare", NAMESPACES))  # fmt: skip
    found.append(_kernel_trouble("network bridges and veth links (CAP_NET_ADMIN, kernel modules "
                                 "bridge and veth)", "ip", NETWORK))  # fmt: skip
    found.append(_kernel_trouble("mounts and device nodes (CAP_SYS_ADMIN, CAP_MKNOD)", "unshare",
                                 DEVICES))  # fmt: skip
    found.append(_kernel_trouble("user namespaces for unprivileged users, for Apptainer (sysctl "
                                 "kernel.unprivileged_userns_clone=1, user.max_user_namespaces, "
                                 "kernel.apparmor_restrict_unprivileged_userns=0)", "setpriv",
                                 USER_NAMESPACES))  # fmt: skip
    if not Path("/dev/fuse").exists():
        found.append("/dev/fuse, with which users mount images (modprobe fuse)")
    if not shutil.which("apt-get"):
        missing = missing_packages(accounting=False)
        if missing:
            found.append(f"apt-get, or the packages that it would install: {' '.join(missing)}")
    return [trouble for trouble in found if trouble]


def _kernel_trouble(what: str, program: str, command: list[str]) -> str | None:
    if shutil.which(program) is None:
        return None  # a package that we install; tried again when it is there
    try:
        run(command, "that")
    except SetupError as error:
        return f"{what} (found: {error})"
    return None


def check() -> None:
    """Raises: SetupError: with all that is missing, one line each."""
    found = troubles()
    if found:
        lines = "\n".join(f"  - {trouble}" for trouble in found)
        raise SetupError(f"this machine cannot play a cluster. Missing:\n{lines}")


def install(packages: list[str], env: Mapping[str, str]) -> None:
    """Install Debian packages without letting them start their services.

    Raises:
        SetupError: apt-get failed.
    """
    policy = Path("/usr/sbin/policy-rc.d")  # asked by packages before they start a service
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        apptainer.install_packages(packages, env)
    except SetupError as error:
        raise SetupError(
            f"{error}\nGive this machine a working Debian mirror, or install the packages yourself."
        ) from error
    finally:
        if ours:
            policy.unlink(missing_ok=True)
