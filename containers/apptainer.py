"""Apptainer on this machine: found on PATH, else installed where Debian 12 has no package of it.

Debian's unstable suite has a package that needs a newer C
library than Debian 12's: it is unpacked beside that library into a folder of its own, so that
nothing else of the machine changes.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from build.mirrors import apt_configuration, debian_codename, debian_mirror
from locks import SetupError, lock_file
from runner import output, run, sha256_of, speaker

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
#: sha256 and path of each file that was written outside PREFIX, also by earlier installations.
WRITTEN = PREFIX.with_name("apptainer.written")
HALF = ".horoscale-"
UNSTABLE = "sid"
#: Package, version and sha256, a line each, as tested; of an installation, what it has.
LOCK = lock_file("apptainer")
INSTALLED = PREFIX / "apptainer.lock"
#: Whatever this machine's own settings are: only packages of a list that Debian signed.
SIGNED = tuple(
    token for name in ("APT::Get::AllowUnauthenticated", "Acquire::AllowInsecureRepositories",
                       "Acquire::AllowWeakRepositories",
                       "Acquire::AllowDowngradeToInsecureRepositories")
    for token in ("-o", f"{name}=false")
)  # fmt: skip
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


def pinned() -> dict[str, tuple[str, str]]:
    """Version and sha256 of each package in the lock."""
    lines = [line.split() for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    return {name: (version, sha256) for name, version, sha256 in lines}


def fetch_debs(folder: Path) -> list[Path]:
    """Download Apptainer's packages; apt's own lists, cache and sources stay untouched.

    Debian keeps one version of a package in its unstable suite, and replaces it within weeks. So
    the lock's versions are taken as long as the mirror has them, and others by Debian's signature.
    """
    for part in ("lists/partial", "apt/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    source = f"deb [signed-by={keyring}] {debian_mirror(os.environ)} {UNSTABLE} main\n"
    (folder / "sources.list").write_text(source)
    (folder / "status").touch()
    (folder / "apt.conf").write_text(
        f'{apt_configuration(str(folder))}Dir::State::status "{folder}/status";\n'
    )
    env, locked = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}, pinned()
    apt = ["apt-get", *SIGNED]
    say(f"downloading {', '.join(locked)} of Debian {UNSTABLE} (about 33 MB)")
    run([*apt, "update", "-qq"], f"reading the package lists of {UNSTABLE}", env=env)
    exact = [f"{name}={version}" for name, (version, _) in locked.items()]
    try:
        run([*apt, "download", *exact], cwd=folder, env=env)
    except SetupError:  # a version is gone, or the mirror is
        run([*apt, "download", *locked], "downloading Apptainer", cwd=folder, env=env)
    return sorted(folder.glob("*.deb"))


def check_debs(debs: Sequence[Path]) -> str:
    """The lock's text for these packages.

    Raises SetupError where one of a locked version is another file.
    """
    locked, found, moved = pinned(), {}, []
    for deb in debs:
        show = ["dpkg-deb", "--show", "--showformat=${Package} ${Version}", str(deb)]
        name, version = run(show).split()
        found[name] = (version, sha256_of(deb))
        if version != locked[name][0]:
            moved.append(f"{name} {version} (not {locked[name][0]})")
        elif found[name] != locked[name]:
            raise SetupError(
                f"{name} {version} from the mirror has sha256 {found[name][1]}, expected "
                f"{locked[name][1]} ({LOCK}): nothing was installed. Name another mirror: "
                "DEBIAN_MIRROR=URL"
            )
    if moved:
        say(
            f"the mirror has other versions than {LOCK.name}, taken by Debian's signature: "
            f"{', '.join(moved)}. To pin them: cp {INSTALLED} {LOCK}"
        )
    return "".join(f"{name} {version} {sha256}\n" for name, (version, sha256) in found.items())


def check_places() -> None:
    """Raises SetupError where a file is in the way that we did not write, or somebody changed."""
    ours = WRITTEN.read_text().splitlines() if WRITTEN.is_file() else []
    there = [
        PROGRAM,
        *(path for top in (CONFIGURATION, STARTER) for path in (top, *top.rglob("*"))),
    ]
    files = (path for path in there if path.is_symlink() or path.is_file())
    found = [path for path in files if not path.name.startswith(HALF)
             and (path.is_symlink() or f"{sha256_of(path)} {path}" not in ours)]  # fmt: skip
    if found:
        raise SetupError(
            f"No apptainer is on PATH, but found {found[0]} ({len(found)} such files), which this "
            "set-up did not write, or somebody changed: nothing was installed. If Apptainer is "
            "installed, add its folder to PATH or load its module. If not, move away what is "
            f"there: {PROGRAM}, {CONFIGURATION}, {STARTER}"
        )


def put(source: Path, target: Path) -> None:
    """Copy a file to its place in one step, after it is noted as ours."""
    with WRITTEN.open("a") as note:
        note.write(f"\n{sha256_of(source)} {target}\n")
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f"{HALF}{target.name}")
    shutil.copy2(source, half)
    half.replace(target)


def install_privately() -> None:
    """Into PREFIX, patched to use the libraries there, and where it looks for its own parts."""
    shutil.rmtree(PREFIX, ignore_errors=True)
    packages = PREFIX / "packages"
    debs = fetch_debs(packages)
    lock = check_debs(debs)
    for deb in debs:
        run(["dpkg", "-x", str(deb), str(PREFIX)], f"unpacking {deb.name}")
    shutil.rmtree(packages)
    INSTALLED.write_text(lock)
    for program in (PREFIX / "usr/bin/apptainer", LIBRARIES / "apptainer/bin/starter"):
        # it uses the C library beside it and no other
        loader = str(LIBRARIES / "ld-linux-x86-64.so.2")
        run(["patchelf", "--set-interpreter", loader, str(program)])
        run(["patchelf", "--force-rpath", "--set-rpath", str(LIBRARIES), str(program)])
    for top, place in (
        (PREFIX / "etc/apptainer", CONFIGURATION), (LIBRARIES / "apptainer", STARTER)
    ):  # fmt: skip
        for file in filter(Path.is_file, top.rglob("*")):
            put(file, place / file.relative_to(top))
    SESSION.mkdir(parents=True, exist_ok=True)
    version = run([str(PREFIX / "usr/bin/apptainer"), "--version"], "starting Apptainer").strip()
    put(PREFIX / "usr/bin/apptainer", PROGRAM)  # last: an interrupted installation starts again
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
    check_places()
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
    """Users mount images through /dev/fuse; most distributions let everybody open it. A group or a
    mode that somebody gave it stays: root's alone is how the kernel makes it."""
    if os.geteuid() != 0 or not FUSE.exists() or FUSE.stat().st_mode & 0o666 == 0o666:
        return
    found = FUSE.stat()
    if (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o600, 0, 0):
        say(f"{FUSE}: opened to all users (mode 0666), as on most distributions")
        FUSE.chmod(0o666)
    else:
        say(f"{FUSE} has mode {stat.S_IMODE(found.st_mode):04o} and group id {found.st_gid}, which "
            "this set-up leaves: other users cannot mount images")  # fmt: skip


def ensure() -> Path:
    """Path of apptainer or singularity, installed first where needed and possible (SetupError)."""
    if find() is None:
        install()
    open_fuse()
    if (found := find()) is None:
        raise SetupError(f"Apptainer was installed, but {PROGRAM.parent} is not on PATH.")
    return found
