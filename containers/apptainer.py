"""Apptainer on this machine: found on PATH, else installed where Debian 12 has no package of it.

Debian's unstable suite has a package that needs a newer C
library than Debian 12's: it is unpacked beside that library into a folder of its own, so that
nothing else of the machine changes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from build.mirrors import apt_configuration, debian_codename, debian_mirror
from locks import SetupError
from runner import output, run, speaker

NAMES = ("apptainer", "singularity")
#: Compiled into the program, which resolves links and then guesses wrongly: where it looks for
#: its configuration, its starter and mount points, and so where it has to be itself.
CONFIGURATION = Path("/etc/apptainer")
STARTER = Path("/usr/lib/x86_64-linux-gnu/apptainer")
SESSION = Path("/var/lib/apptainer/mnt/session")
PROGRAM = Path("/usr/bin/apptainer")
#: The C library that it needs, and all else of the packages.
PREFIX = Path("/usr/local/lib/horoscale/apptainer")
LIBRARIES = PREFIX / "usr/lib/x86_64-linux-gnu"
UNSTABLE = "sid"
PACKAGES = ("apptainer", "libc6", "libseccomp2", "libsqlite3-0")
#: Mounting SIF files as a user, mapping user ids, building images; program -> Debian package.
HELPERS = {
    "mksquashfs": "squashfs-tools", "squashfuse": "squashfuse", "fuse2fs": "fuse2fs",
    "newuidmap": "uidmap", "patchelf": "patchelf", "debootstrap": "debootstrap",
}  # fmt: skip
FUSE = Path("/dev/fuse")
ELSEWHERE = (
    "Ask your site's administrators for apptainer (or singularity), load its module, or install "
    "it: https://apptainer.org/docs/admin/main/installation.html"
)


say = speaker("apptainer")


def find() -> Path | None:
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    return None


def install_packages(
    packages: Sequence[str], env: Mapping[str, str] = os.environ, around: Sequence[str] = ()
) -> None:
    """``around``: a command that runs the installing one."""
    quiet = {**env, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    run(["apt-get", "update", "-qq"], "apt-get update", env=quiet)
    run([*around, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        "apt-get install", env=quiet)  # fmt: skip


def fetch_debs(folder: Path) -> list[Path]:
    """Download Apptainer's packages; apt's own lists, cache and sources stay untouched."""
    for part in ("lists/partial", "apt/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    source = f"deb [signed-by={keyring}] {debian_mirror(os.environ)} {UNSTABLE} main\n"
    (folder / "sources.list").write_text(source)
    (folder / "status").touch()
    (folder / "apt.conf").write_text(
        f'{apt_configuration(str(folder))}Dir::State::status "{folder}/status";\n'
    )
    env = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
    say(f"downloading {', '.join(PACKAGES)} of Debian {UNSTABLE} (about 33 MB)")
    run(["apt-get", "update", "-qq"], f"reading the package lists of {UNSTABLE}", env=env)
    run(["apt-get", "download", *PACKAGES], "downloading Apptainer", cwd=folder, env=env)
    return sorted(folder.glob("*.deb"))


def install_privately() -> None:
    """Into PREFIX, patched to use the libraries there, and where it looks for its own parts."""
    shutil.rmtree(PREFIX, ignore_errors=True)
    debs = PREFIX / "packages"
    for deb in fetch_debs(debs):
        run(["dpkg", "-x", str(deb), str(PREFIX)], f"unpacking {deb.name}")
    shutil.rmtree(debs)
    for program in (PREFIX / "usr/bin/apptainer", LIBRARIES / "apptainer/bin/starter"):
        # it uses the C library beside it and no other
        loader = str(LIBRARIES / "ld-linux-x86-64.so.2")
        run(["patchelf", "--set-interpreter", loader, str(program)])
        run(["patchelf", "--force-rpath", "--set-rpath", str(LIBRARIES), str(program)])
    shutil.copytree(PREFIX / "etc/apptainer", CONFIGURATION, dirs_exist_ok=True)
    shutil.copytree(LIBRARIES / "apptainer", STARTER, dirs_exist_ok=True)
    SESSION.mkdir(parents=True, exist_ok=True)
    version = run([str(PREFIX / "usr/bin/apptainer"), "--version"], "starting Apptainer").strip()
    # last, and in one step: an interrupted installation is done anew
    half = PROGRAM.with_name(".apptainer.new")
    shutil.copy2(PREFIX / "usr/bin/apptainer", half)
    half.rename(PROGRAM)
    say(f"{version} is installed: {PROGRAM} (its own C library in {PREFIX})")


def install() -> None:
    trouble = ""
    if not debian_codename() or os.uname().machine != "x86_64":
        trouble = "this machine is not Debian on x86_64, the only kind where we can install it"
    elif os.geteuid() != 0:
        trouble = "only root can install it: run this once as root"
    if trouble:
        raise SetupError(
            f"Neither apptainer nor singularity is on PATH, and {trouble}. {ELSEWHERE}"
        )
    missing = [package for program, package in HELPERS.items() if shutil.which(program) is None]
    if missing:
        say(f"installing {' '.join(missing)}")
        install_packages(missing)
    if output(["apt-cache", "show", "apptainer"]):  # Debian 12's own sources have none
        say("installing the package apptainer")
        install_packages(["apptainer"])
    else:
        install_privately()


def open_fuse() -> None:
    """Users mount images through /dev/fuse; most distributions let everybody open it."""
    if os.geteuid() == 0 and FUSE.exists() and FUSE.stat().st_mode & 0o666 != 0o666:
        say(f"{FUSE}: opened to all users (mode 0666), as on most distributions")
        FUSE.chmod(0o666)


def ensure() -> Path:
    """Path of apptainer or singularity, installed first where needed and possible (SetupError)."""
    if find() is None:
        install()
    open_fuse()
    if (found := find()) is None:
        raise SetupError(f"Apptainer was installed, but {PROGRAM.parent} is not on PATH.")
    return found
