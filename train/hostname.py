"""What this host's own name stands for, which decides where Horovod's Gloo sends the data.

Horovod 0.28.1 meets over the interface that is named, then makes the connections for the data over
the address of the host's name (the context of a process set is made without the interface). A name
that stands for nothing ends the process in native code, without a Python exception; one that
stands for loopback leaves ranks of several nodes unable to connect. A build whose version says
``+iface`` is cured of it.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from train.config import ConfigError
from train.interfaces import NAME, Interface, interfaces_here

_CURED = "+iface"
_FIX = (
    "Have the name stand for the address of the network between the nodes (DNS or /etc/hosts of "
    "each node), or let ranks meet by PMIx (mpi: pmix in the site's file)"
)


def horovod_is_cured() -> bool:
    """Whether this Horovod sends its data over the interface that is named."""
    try:
        return _CURED in version("horovod")
    except PackageNotFoundError:
        return False


def address_of(name: str) -> str | None:
    """The address that Gloo would take for a name: the first one that is this host's own."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, _, _, address in found:
        with socket.socket(family, kind) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return str(address[0])
    return None


def data_interface(
    interface: Interface,
    *,
    nodes: int,
    environment: Mapping[str, str],
    host: str,
    address: str | None,
) -> Interface:
    """The interface that an uncured Horovod sends its data over, for a rank that is to use
    ``interface``.

    Args:
        host: this host's name.
        address: what it stands for (:func:`address_of`).

    Raises:
        ConfigError: the name stands for nothing, or leads elsewhere than to where it must.
    """
    if address is None:
        raise ConfigError(
            f"the name of this host, {host}, stands for no address of its own, so that Horovod "
            f"would crash. Add a line to /etc/hosts ({interface.address} {host})"
        )
    if nodes == 1 or address == interface.address:
        return interface
    told = f"the name of this host, {host}, stands for {address}, and Horovod sends its data there"
    if ipaddress.ip_address(address).is_loopback:
        raise ConfigError(f"{told}: ranks of other nodes could not reach it. {_FIX}")
    if name := environment.get(NAME):
        raise ConfigError(f"{told}, not over {name} ({interface.address}) as asked. {_FIX}")
    holders = [n for n, held in interfaces_here().items() if held == address]
    return Interface(holders[0], address) if holders else interface
