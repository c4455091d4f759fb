"""This machine's ways to packages: its Debian mirror, proxies and CA bundle, taken over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from locks import SetupError
from runner import output

SUITE = "bookworm"
OS_RELEASE = Path("/etc/os-release")
#: Said by the user, they win over what the machine is configured with.
MIRROR, SECURITY_MIRROR = "DEBIAN_MIRROR", "DEBIAN_SECURITY_MIRROR"
#: In this order; the first that is set names the bundle that all downloads trust.
CA_NAMES = ("CA", "SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PROXY_NAMES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")


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


def os_release() -> dict[str, str]:
    lines = OS_RELEASE.read_text().splitlines() if OS_RELEASE.is_file() else []
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def debian_codename() -> str:
    """bookworm, trixie, ...: of the machine that we run on; "" where it is not Debian."""
    fields = os_release()
    return fields.get("VERSION_CODENAME", "") if fields.get("ID") == "debian" else ""


def mirror_of(suite: str) -> str | None:
    """The address from which this machine's apt has the main component of a suite."""
    targets = output(["apt-get", "indextargets", "--format",
                      "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"])  # fmt: skip
    for line in (targets or "").splitlines():
        address, *rest = line.split()
        if rest == [suite, "main"]:
            return address.rstrip("/")
    return None


def debian_mirror(environment: Mapping[str, str]) -> str:
    """DEBIAN_MIRROR as told, else the mirror that this machine's apt uses for its own packages."""
    if found := environment.get(MIRROR) or mirror_of(debian_codename()):
        return found.rstrip("/")
    raise SetupError(
        "No Debian mirror is known: this machine's apt has none for Debian. "
        f"Name one: {MIRROR}=http://HOST/debian (and {SECURITY_MIRROR}= for security updates)."
    )


def sources_list(environment: Mapping[str, str]) -> str:
    """apt's sources while building; the image keeps none."""
    mirror = debian_mirror(environment)
    lines = [f"deb {mirror} {SUITE} main", f"deb {mirror} {SUITE}-updates main"]
    if security := environment.get(SECURITY_MIRROR) or mirror_of(f"{SUITE}-security"):
        lines.append(f"deb {security.rstrip('/')} {SUITE}-security main")
    return "\n".join(lines) + "\n"


def apt_settings() -> str:
    """This machine's own download settings of apt (proxies, retries, checks), as a file."""
    found = output(["apt-config", "dump", "Acquire"]) or ""
    # a path of this machine means nothing inside the build, which has its own copy of the bundle
    return "".join(f"{line}\n" for line in found.splitlines() if "CAInfo" not in line)


def apt_configuration(folder: str) -> str:
    """apt's settings where sources, lists and packages lie in a folder of their own."""
    return (
        f'Dir::Etc::sourcelist "{folder}/sources.list";\n'
        'Dir::Etc::sourceparts "-";\n'
        f'Dir::State::lists "{folder}/lists";\n'
        f'Dir::Cache "{folder}/apt";\n'
        'APT::Keep-Downloaded-Packages "true";\n'
        'APT::Install-Recommends "false";\n'
        'Acquire::Languages "none";\n'
        'APT::Sandbox::User "root";\n'  # the only user that a build's namespace surely has
    )


def apt_ways(proxies: Mapping[str, str], *, ca: bool) -> str:
    """apt's settings for what the user's variables name."""
    lines = [
        f'Acquire::{scheme}::Proxy "{proxies[f"{scheme}_proxy"]}";\n'
        for scheme in ("http", "https") if f"{scheme}_proxy" in proxies
    ]  # fmt: skip
    return "".join(lines) + ('Acquire::https::CAInfo "/mnt/ca.crt";\n' if ca else "")
