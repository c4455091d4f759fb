"""Apptainer on this machine: found on PATH, else installed where Debian 12 has no package of it.

Run as a program it prints the path. Debian's unstable suite has a package that needs a newer C
library than Debian 12's: it is unpacked beside that library into a folder of its own, so that
nothing else of the machine changes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from build.mirrors import cache_folder, debian_codename, debian_mirror
from locks import SetupError, environment_of_train
from runner import output, run
from users import is_private

NAMES = ("apptainer", "singularity")
#: Compiled into the program, which resolves links and then guesses wrongly: where it looks for
#: its configuration, its starter and mount points, and so where it has to be itself.
CONFIGURATION = Path("/etc/apptainer")
STARTER = Path("/usr/lib/x86_64-linux-gnu/apptainer")
SESSION = Path("/var/lib/apptainer/mnt/session")
PROGRAM = Path("/usr/bin/apptainer")
#: The C library that it needs, and all else of the packages.
PREFIX = Path("/usr/local/lib/horoscale/apptainer")
ROOTS_CACHE = Path("/var/cache/horoscale")
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


def say(text: str) -> None:
    print(f"[apptainer] {text}", file=sys.stderr, flush=True)


def find() -> Path | None:
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    return None


def private_cache() -> Path:
    """Where downloads are kept that root installs from: nobody else can put anything there."""
    for folder in (cache_folder().resolve(), ROOTS_CACHE):
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        if is_private(folder):
            return folder / "apptainer"
    raise SetupError(f"{ROOTS_CACHE} can be written by others than root: chown -R root, chmod go-w")


def apt_options(folder: Path) -> list[str]:
    """Options that give apt lists, cache and sources of their own: the machine's stay untouched."""
    return [
        f"-oDir::Etc::sourcelist={folder / 'sources.list'}", "-oDir::Etc::sourceparts=-",
        f"-oDir::State::lists={folder / 'lists'}", f"-oDir::Cache={folder / 'cache'}",
        f"-oDir::State::status={folder / 'status'}", "-oAPT::Sandbox::User=root",
    ]  # fmt: skip


def missing_packages() -> list[str]:
    return [package for program, package in HELPERS.items() if shutil.which(program) is None]


def install_packages(packages: Sequence[str], env: Mapping[str, str] = os.environ) -> None:
    quiet = {**env, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    run(["apt-get", "update", "-qq"], "apt-get update", env=quiet)
    run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        "apt-get install", env=quiet)  # fmt: skip


def cached_debs(folder: Path) -> list[Path]:
    """Packages that were seen to start together, in the cache from an earlier installation."""
    note = folder / "good"
    names = note.read_text().splitlines() if note.is_file() else []
    found = [folder / name for name in names]
    return found if found and all(deb.is_file() for deb in found) else []


def fetch_debs(folder: Path) -> list[Path]:
    if ready := cached_debs(folder):
        say(f"using the packages in {folder}")
        return ready
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    source = f"deb [signed-by={keyring}] {debian_mirror(os.environ)} {UNSTABLE} main\n"
    (folder / "sources.list").write_text(source)
    (folder / "status").write_text("")
    for old in folder.glob("*.deb"):
        old.unlink()
    say(f"downloading {', '.join(PACKAGES)} of Debian {UNSTABLE} (about 33 MB)")
    options = apt_options(folder)
    run(["apt-get", *options, "update", "-qq"], f"reading the package lists of {UNSTABLE}")
    run(["apt-get", *options, "download", *PACKAGES], "downloading Apptainer", cwd=folder)
    return sorted(folder.glob("*.deb"))


def patch_commands(program: Path, libraries: Path) -> list[list[str]]:
    """Make a program use the C library beside it and no other."""
    interpreter = str(libraries / "ld-linux-x86-64.so.2")
    return [
        ["patchelf", "--set-interpreter", interpreter, str(program)],
        ["patchelf", "--force-rpath", "--set-rpath", str(libraries), str(program)],
    ]


def unpack(debs: Sequence[Path]) -> None:
    """Into PREFIX, patched to use its libraries there."""
    shutil.rmtree(PREFIX, ignore_errors=True)
    PREFIX.mkdir(parents=True)
    for deb in debs:
        run(["dpkg", "-x", str(deb), str(PREFIX)], f"unpacking {deb.name}")
    for program in (PREFIX / "usr/bin/apptainer", LIBRARIES / "apptainer/bin/starter"):
        for command in patch_commands(program, LIBRARIES):
            run(command, f"patching {program.name}")


def install_privately() -> None:
    folder = private_cache()
    folder.mkdir(parents=True, exist_ok=True)
    debs = fetch_debs(folder)
    unpack(debs)
    shutil.copytree(PREFIX / "etc/apptainer", CONFIGURATION, dirs_exist_ok=True)
    shutil.copytree(LIBRARIES / "apptainer", STARTER, dirs_exist_ok=True)
    SESSION.mkdir(parents=True, exist_ok=True)
    version = run([str(PREFIX / "usr/bin/apptainer"), "--version"], "starting Apptainer").strip()
    (folder / "good").write_text("\n".join(deb.name for deb in debs) + "\n")
    # last, and in one step: an interrupted installation is done anew
    half = PROGRAM.with_name(".apptainer.new")
    shutil.copy2(PREFIX / "usr/bin/apptainer", half)
    half.rename(PROGRAM)
    say(f"{version} is installed: {PROGRAM} (its own C library in {PREFIX})")


def has_package() -> bool:
    """Whether this machine's own sources offer Apptainer (Debian 12's do not)."""
    policy = output(["env", "LC_ALL=C.UTF-8", "apt-cache", "policy", "apptainer"]) or ""
    return "Candidate:" in policy and "Candidate: (none)" not in policy


def install() -> None:
    codename = debian_codename()
    if not codename or os.uname().machine != "x86_64":
        raise SetupError(
            f"Neither apptainer nor singularity is on PATH, and this machine is not Debian on "
            f"x86_64, the only kind where we can install it. {ELSEWHERE}"
        )
    if os.geteuid() != 0:
        raise SetupError(
            "Neither apptainer nor singularity is on PATH, and only root can install it. "
            f"Run this once as root. Or: {ELSEWHERE}"
        )
    if missing := missing_packages():
        say(f"installing {' '.join(missing)}")
        install_packages(missing)
    if has_package():
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
    found = find()
    if found is None:
        install()
        found = find()
        if found is None:
            raise SetupError(f"Apptainer was installed, but {PROGRAM.parent} is not on PATH.")
    open_fuse()
    return found


def main() -> int:
    try:
        print(ensure())
    except (SetupError, OSError) as error:
        say(str(error))
        return 2
    return 0


if __name__ == "__main__":
    environment_of_train().enter("image", os.environ)
    sys.exit(main())
