"""Quick tests see a bare machine, whatever was installed or started on it, and leave it as it is.

A session of quick tests (``-m "not slow and not slurm"``) has a PATH of links, without Apptainer
and Slurm, no configuration of Slurm, and an empty home. Programs that install packages or make
users are stand-ins that refuse. Root's session also has a network of its own, which is loopback
alone, and mounts of its own: the practice user is hidden, and what a test mounts ends with the
session. Another user cannot have these, so proxies that lead nowhere stand in for the network. A
refusal, and a process that outlives the session, fail the session.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from jobs.slurm.client import detect
from tests.sweeps import executable

#: Only tests with one of these marks see what is installed.
UNBARE = ("slow", "slurm")
HIDDEN = re.compile(
    "(run-)?(apptainer|singularity)|(un|re)?munged?|slurm.*|sacct(mgr)?|salloc|sattach|sbatch|"
    "sbcast|scancel|scontrol|scrontab|sdiag|sinfo|sprio|squeue|sreport|srun|sshare|sstat|strigger"
)
INSTALLERS = (
    "apt", "apt-get", "aptitude", "dpkg", "useradd", "adduser", "usermod", "userdel", "deluser",
    "newusers", "groupadd", "addgroup", "groupmod", "groupdel", "delgroup",
)  # fmt: skip
#: Reading, as a question for the mirrors, is allowed.
REFUSAL = """#!/bin/sh
case $1 in indextargets | --print-* | --version) exec {real} "$@" ;; esac
echo "$PYTEST_CURRENT_TEST: {name} $*" >>{notes}
echo "{name}: refused, since quick tests install nothing (tests/bare.py)" >&2
exit 1
"""
PRACTICE = "practice:"  # the user, and the group and ids of that name
SITES = ("SLURM_", "XDG_", "MODULESHOME", "LMOD_CMD")  # variables of a cluster, or of its user
SESSION = "BARE_SESSION"  # variable that all its processes inherit: its folder
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
PR_SET_CHILD_SUBREAPER = 36
MOUNTS = Path("/proc/self/mountinfo")
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
DEAD_PROXY = "http://127.0.0.1:9"


def pytest_configure(config: pytest.Config) -> None:
    wanted = all(f"not {mark}" in config.option.markexpr for mark in UNBARE)
    if not wanted or hasattr(config, "workerinput"):  # workers inherit all of it
        return
    folder = Path(tempfile.mkdtemp(prefix="horoscale-bare-", dir="/var/tmp"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    folder.chmod(0o755)
    for name in [name for name in os.environ if name.startswith(SITES)]:
        del os.environ[name]
    (folder / "home").mkdir()
    os.environ |= {
        SESSION: str(folder), "PATH": str(links(folder)), "HOME": f"{folder}/home",
        "HOROSCALE_PRACTICE": "/run/horoscale-bare",
    }  # fmt: skip
    # what a test leaves becomes a child of this process when its own has ended
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        part(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        # programs obey it, as far as they obey any proxy
        os.environ |= dict.fromkeys(("http_proxy", "https_proxy"), DEAD_PROXY)
        os.environ["no_proxy"] = "localhost,127.0.0.1,::1"
        print(f"[bare] network and mounts are the machine's ({error}); proxies lead nowhere",
              file=sys.stderr)  # fmt: skip


@pytest.fixture(autouse=True, scope="session")
def _no_configuration() -> Iterator[None]:
    """Of Slurm, wherever this machine has one. Root's session hides the files, too."""
    with pytest.MonkeyPatch.context() as patch:
        if SESSION in os.environ:
            patch.setattr(detect, "CONFIGURATIONS", ())
        yield


def links(folder: Path) -> Path:
    """The programs of PATH in one folder, without those that are hidden."""
    made, notes = folder / "bin", folder / "refused"
    made.mkdir()
    notes.touch()
    notes.chmod(0o666)
    for place in os.get_exec_path():
        with suppress(OSError):  # of a user who may not enter it
            for program in Path(place).iterdir():
                if not HIDDEN.fullmatch(program.name) and not (made / program.name).is_symlink():
                    (made / program.name).symlink_to(program.absolute())
    for name in INSTALLERS:
        if real := shutil.which(name):
            real = shutil.copy(real, folder / f"real-{name}")  # its own place gets the stand-in
        (made / name).unlink(missing_ok=True)
        executable(made / name, REFUSAL.format(name=name, real=real or "false", notes=notes))
    return made


def part(folder: Path) -> None:
    """Give this process, and all that it starts, a network and mounts of their own (OSError)."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS | CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with socket.socket() as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))
    mount("--make-rprivate", "/")
    files = {"hosts": f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n"}
    for name in ("passwd", "group", "subuid", "subgid"):
        with suppress(FileNotFoundError):
            lines = Path("/etc", name).read_text().splitlines(keepends=True)
            files[name] = "".join(line for line in lines if not line.startswith(PRACTICE))
    for name, text in files.items():
        (folder / name).write_text(text)
        if Path("/etc", name).exists():
            mount("--bind", str(folder / name), f"/etc/{name}")
    for file in detect.CONFIGURATIONS:  # programs that tests start look for them, too
        if os.path.lexists(file):
            mount("-t", "tmpfs", "tmpfs", str(Path(file).parent))
    # also for who names no PATH, or the whole path; some are links to others
    found = {name: shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") for name in INSTALLERS}
    for real, name in {os.path.realpath(at): name for name, at in found.items() if at}.items():
        mount("--bind", str(folder / "bin" / name), real)
    Path("/run/netns").mkdir(exist_ok=True)  # `ip netns add` mounts it, and leaves it so
    mount("-t", "tmpfs", "tmpfs", "/run/netns")
    (folder / "mounts").write_text(MOUNTS.read_text())


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def violations(folder: Path) -> Iterator[str]:
    yield from (folder / "refused").read_text().splitlines()
    if (folder / "mounts").exists():  # a namespace of the session's own
        before, now = (
            {line.split()[4] for line in file.read_text().splitlines()}
            for file in (folder / "mounts", MOUNTS)
        )
        yield from (f"left mounted: {place}" for place in sorted(now - before))
    for process in psutil.wait_procs(psutil.Process().children(recursive=True), timeout=5)[1]:
        with suppress(psutil.Error):
            test = process.environ().get("PYTEST_CURRENT_TEST", "a test")
            yield f"{test}: {' '.join(process.cmdline())} (process {process.pid}) did not end"
            process.kill()


@pytest.hookimpl(trylast=True)  # when workers have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    folder = os.environ.get(SESSION)
    if folder is None or hasattr(session.config, "workerinput"):
        return
    for line in violations(Path(folder)):
        print(f"\n[bare] {line}", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
