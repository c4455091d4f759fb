"""This machine's ways to packages: its Debian mirror, proxies and CA bundle, taken over."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from locks import SetupError
from runner import output

#: Said by the user, they win over what the machine is configured with.
MIRROR, SECURITY_MIRROR = "DEBIAN_MIRROR", "DEBIAN_SECURITY_MIRROR"
#: In this order; the first that is set names the bundle that all downloads trust.
CA_NAMES = ("CA", "SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PROXY_NAMES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")


def cache_folder() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "horoscale"


def ca_bundle(environment: Mapping[str, str]) -> Path | None:
    """The site's own CA bundle, where one is named.

    Raises SetupError where it does not exist: without it every download would fail later.
    """
    for name in CA_NAMES:
        if told := environment.get(name):
            if not Path(told).is_file():
                raise SetupError(
                    f"{name}={told} found, expected a file of CA certificates (PEM). "
                    f"Correct {name} or unset it."
                )
            return Path(told).resolve()
    return None


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Proxy variables in both spellings, because programs read one or the other."""
    found: dict[str, str] = {}
    for name in PROXY_NAMES:
        value = environment.get(name) or environment.get(name.upper())
        if value:
            found |= {name: value, name.upper(): value}
    return found


def index_targets() -> str:
    """One line per package index of this machine's apt: its address, suite and component."""
    return output(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                   "Created-By: Packages"]) or ""  # fmt: skip


def mirror_of(targets: str, suite: str) -> str | None:
    """The address that serves the main component of a suite; ``targets`` as index_targets()."""
    for line in targets.splitlines():
        address, *rest = line.split()
        if rest == [suite, "main"]:
            return address.rstrip("/")
    return None


def debian_codename() -> str:
    """bookworm, trixie, ...: of the machine that we run on; "" where it is not Debian."""
    fields = {}
    release = Path("/etc/os-release")
    for line in release.read_text().splitlines() if release.is_file() else []:
        key, _, value = line.partition("=")
        fields[key] = value.strip('"')
    return fields.get("VERSION_CODENAME", "") if fields.get("ID") == "debian" else ""


def debian_mirror(environment: Mapping[str, str]) -> str:
    """DEBIAN_MIRROR as told, else the mirror that this machine's apt uses for its own packages."""
    if told := environment.get(MIRROR):
        return told.rstrip("/")
    if found := mirror_of(index_targets(), debian_codename()):
        return found
    raise SetupError(
        "No Debian mirror is known: this machine's apt has none for Debian. "
        f"Name one: {MIRROR}=http://HOST/debian (and {SECURITY_MIRROR}= for security updates)."
    )


def security_mirror(environment: Mapping[str, str], suite: str) -> str | None:
    if told := environment.get(SECURITY_MIRROR):
        return told.rstrip("/")
    return mirror_of(index_targets(), f"{suite}-security")


def apt_settings() -> str:
    """This machine's own download settings of apt (proxies, retries, checks), as a file."""
    found = output(["apt-config", "dump", "Acquire"]) or ""
    # a path of this machine means nothing inside the build, which has its own copy of the bundle
    return "".join(f"{line}\n" for line in found.splitlines() if "CAInfo" not in line)
