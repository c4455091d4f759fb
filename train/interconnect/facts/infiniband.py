"""InfiniBand and RoCE ports: what ibstat shows and perfquery counts, read where both read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from train.interconnect.facts.probe import Answer, fact, read
from train.interconnect.facts.record import Fact

_OF_ADAPTER = {"type": "hca_type", "firmware": "fw_ver", "board": "board_id"}
_OF_PORT = {"state": "state", "physical state": "phys_state", "rate": "rate",
            "link layer": "link_layer"}  # fmt: skip
#: A healthy port's do not grow (InfiniBand architecture, PortCounters).
_ERRORS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors",
    "port_rcv_remote_physical_errors", "port_xmit_discards", "port_rcv_constraint_errors",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors", "VL15_dropped",
)  # fmt: skip
_WAITS = ("port_xmit_wait",)


def infiniband(root: Path = Path("/")) -> Iterator[Fact]:
    """Adapters by their names, ports by their numbers; or the one fact that there is none."""
    adapters = sorted((root / "sys/class/infiniband").glob("*"))
    yield fact("infiniband", "adapters", Answer(" ".join(a.name for a in adapters) or "none"))
    for adapter in adapters:
        for name, file in _OF_ADAPTER.items():
            yield fact("infiniband", f"{adapter.name} {name}", read(adapter / file))
        yield fact("infiniband", f"{adapter.name} GUID", read(adapter / "node_guid"), "own")
        yield from _pcie(adapter)
        for port in sorted((adapter / "ports").glob("*")):
            yield from _port(f"{adapter.name}:{port.name}", port)


def _port(label: str, port: Path) -> Iterator[Fact]:
    for name, file in _OF_PORT.items():
        told = read(port / file)
        # "4: ACTIVE" and "5: LinkUp"
        text = told.text.partition(": ")[2] or told.text if told.text else told.text
        yield fact("infiniband", f"{label} {name}", Answer(text, told.why))
    yield fact("infiniband", f"{label} LID", read(port / "lid"), "own")
    for counter in (*_ERRORS, *_WAITS):
        yield fact("infiniband", f"{label} {counter}", read(port / "counters" / counter), "counter")


def _pcie(adapter: Path) -> Iterator[Fact]:
    for way in ("speed", "width"):
        now = read(adapter / f"device/current_link_{way}")
        best = read(adapter / f"device/max_link_{way}")
        if now.text and best.text:
            now = Answer(now.text if now.text == best.text else f"{now.text} of {best.text}")
        yield fact("infiniband", f"{adapter.name} PCIe {way}", now)
