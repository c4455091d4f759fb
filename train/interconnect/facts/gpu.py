"""GPUs as nvidia-smi tells of them; its XML and matrix were read from published reports only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from train.interconnect.facts.probe import Answer, ask, fact
from train.interconnect.facts.record import Fact, Role

QUERY = ("nvidia-smi", "-q", "-x")
TOPOLOGY = ("nvidia-smi", "topo", "-m")
NVLINK = ("nvidia-smi", "nvlink", "--status")

#: name -> places in the XML (drivers differ) and role
_OF_A_GPU: dict[str, tuple[tuple[str, ...], Role]] = {
    "product": (("product_name",), "same"),
    "VBIOS": (("vbios_version",), "same"),
    "UUID": (("uuid",), "own"),
    "persistence": (("persistence_mode",), "same"),
    "PCIe generation": (("pci/pci_gpu_link_info/pcie_gen/max_link_gen",), "same"),
    "PCIe width": (("pci/pci_gpu_link_info/link_widths/current_link_width",), "same"),
    "PCIe replays": (("pci/replay_counter",), "counter"),
    "largest SM clock": (("max_clocks/sm_clock",), "same"),
    "application clock": (("applications_clocks/graphics_clock",), "same"),
    "ECC": (("ecc_mode/current_ecc",), "same"),
    "uncorrected errors": (
        ("ecc_errors/volatile/dram_uncorrectable", "ecc_errors/volatile/double_bit/total"),
        "counter",
    ),
    "remapped rows": (("remapped_rows/remapped_row_unc", "retired_pages/double_bit_retirement/"
                       "retired_count"), "same"),
    "remapping pending": (("remapped_rows/remapped_row_pending",
                           "retired_pages/pending_retirement"), "same"),
    "MIG": (("mig_mode/current_mig",), "same"),
}  # fmt: skip
#: Slowing down for these is no fault: nothing runs, or the site said so.
_HARMLESS = ("gpu_idle", "applications_clocks_setting", "sync_boost", "display_clocks_setting")
#: Of memory, NVLink, the bus and the firmware (NVIDIA's catalogue of Xid errors); the others are
#: mostly a user program's.
_XID = (48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120)
_ABSENT = {"N/A", "Not Supported", "[N/A]", ""}


def gpu() -> Iterator[Fact]:
    told = ask(QUERY)
    yield from parse_query(told)
    if told.text is not None:
        topology = ask(TOPOLOGY)
        yield fact("gpu", "topology", Answer(parse_topology(topology.text), topology.why))
        links = ask(NVLINK)
        yield fact("gpu", "NVLink", Answer(parse_nvlink(links.text), links.why))
        # the kernel's log, where Xid errors stand, is root's on most systems
        yield fact("gpu", "Xid errors", Answer(*_xid(ask(("dmesg",)))), "counter")


def parse_query(told: Answer) -> Iterator[Fact]:
    """The XML of ``nvidia-smi -q -x``."""
    if told.text is None:
        yield fact("gpu", "GPUs", told)
        return
    try:
        log = ElementTree.fromstring(told.text)  # noqa: S314  (the driver's own program wrote it)
    except ElementTree.ParseError as error:
        yield fact("gpu", "GPUs", Answer(None, f"nvidia-smi -q -x is no XML: {error}"))
        return
    gpus = log.findall("gpu")
    yield fact("gpu", "GPUs", Answer(str(len(gpus))))
    for name, place in (("driver", "driver_version"), ("CUDA of the driver", "cuda_version")):
        yield fact("gpu", name, _at(log, (place,)))
    for number, one in enumerate(gpus):
        for name, (places, role) in _OF_A_GPU.items():
            yield fact("gpu", f"{number} {name}", _at(one, places), role)
        yield fact("gpu", f"{number} slowed down by", slowed(one))


def _at(element: ElementTree.Element, places: tuple[str, ...]) -> Answer:
    for place in places:
        text = (element.findtext(place) or "").strip()
        if text not in _ABSENT:
            return Answer(text)
    return Answer(None, f"nvidia-smi does not tell ({places[0].rsplit('/', 1)[-1]})")


def slowed(one: ElementTree.Element) -> Answer:
    """Reasons that are active now; older drivers call them throttle reasons, newer ones event."""
    for kind in ("event", "throttle"):
        reasons = one.find(f"clocks_{kind}_reasons")
        if reasons is not None:
            prefix = f"clocks_{kind}_reason_"
            active = [
                reason.tag.removeprefix(prefix)
                for reason in reasons
                if (reason.text or "").strip() == "Active"
            ]
            return Answer(" ".join(a for a in active if a not in _HARMLESS) or "nothing")
    return Answer(None, "nvidia-smi does not tell (clocks_event_reasons)")


def parse_topology(text: str | None) -> str | None:
    """The matrix of ``nvidia-smi topo -m`` without its legend, one row after another."""
    if text is None:
        return None
    lines = text.partition("Legend:")[0].splitlines()
    # the heading is indented
    rows = [" ".join(line.split()) for line in lines if re.match(r"(GPU|NIC|mlx)", line)]
    return "; ".join(rows) or None


def parse_nvlink(text: str | None) -> str | None:
    """Links and their speeds, counted: ``18 x 26.562 GB/s`` for each GPU."""
    if text is None:
        return None
    found: list[str] = []
    for block in re.split(r"(?m)^GPU \d+:", text)[1:]:
        speeds = re.findall(r"Link \d+: (.+)", block)
        kinds = sorted({speed.strip() for speed in speeds})
        found.append(", ".join(f"{sum(s.strip() == k for s in speeds)} x {k}" for k in kinds))
    return "; ".join(one or "none" for one in found) or None


def _xid(told: Answer) -> tuple[str | None, str | None]:
    if told.text is None:
        return None, told.why
    numbers = re.findall(r"NVRM: Xid [^:]*: (\d+)", told.text)
    return str(sum(int(number) in _XID for number in numbers)), None
