"""Parsers of what nodes' tools say.

Where the texts come from: /proc/net files and the practice nodes' own from this suite's machines;
ibstat's fields for a ConnectX-3 from a vendor's knowledge base (advancedclustering.com, InfiniBand
port states), laid out as the kernel's files that ibstat reads; nvidia-smi's XML and matrices cut
from public bug reports (netdata/netdata 2922, 1Panel 10990, NVIDIA/nccl 933). No output of
nvlink --status, ofed_info, ucx_info or fi_info of a known machine was at hand: those are made up
in the documented form.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from train.interconnect.facts.gpu import parse_nvlink, parse_query, parse_topology
from train.interconnect.facts.identity import agrees, identity
from train.interconnect.facts.infiniband import infiniband
from train.interconnect.facts.network import counters, mtu, network, retransmissions
from train.interconnect.facts.probe import Answer, ask, read
from train.interconnect.facts.processor import processor
from train.interconnect.facts.record import Fact
from train.interconnect.facts.software import version

_NAMES = "packets errs drop fifo"
NET_DEV = f"""Inter-|   Receive                          |  Transmit
 face |bytes {_NAMES} frame compressed multicast|bytes {_NAMES} colls carrier compressed
    lo:  345108    3386 0 0 0 0 0 0   345108 3386 0 0 0 0 0 0
  eth0: 1009823   10402 3 7 1 2 0 0   601228 4871 4 5 6 9 0 0
"""
SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens RetransSegs InErrs
Tcp: 1 200 120000 -1 1213 2398 0
"""


def told(facts: object) -> dict[str, str | None]:
    return {fact.name: fact.value for fact in facts}  # type: ignore[attr-defined]


def test_errors_and_drops_of_the_measured_interface() -> None:
    found = told(counters("eth0", Answer(NET_DEV)))
    assert found == {
        "received errors": "3", "received drops": "7", "received fifo": "1", "received frame": "2",
        "sent errors": "4", "sent drops": "5", "sent fifo": "6",
    }  # fmt: skip


def test_an_interface_that_is_not_counted_is_unknown_with_the_reason() -> None:
    found = list(counters("ib7", Answer(NET_DEV)))
    assert {fact.value for fact in found} == {None}
    assert {fact.why for fact in found} == {"ib7 is not in /proc/net/dev"}
    denied = list(counters("eth0", Answer(None, "/proc/net/dev: Permission denied")))
    assert {(f.value, f.why) for f in denied} == {(None, "/proc/net/dev: Permission denied")}


def test_segments_sent_again() -> None:
    assert told(retransmissions(Answer(SNMP))) == {"TCP segments sent again": "2398"}
    (fact,) = retransmissions(Answer("nonsense"))
    assert fact.value is None and fact.why == "no RetransSegs in /proc/net/snmp"


def test_the_mtu_of_this_machines_loopback() -> None:
    assert mtu("lo").text == Path("/sys/class/net/lo/mtu").read_text().strip()
    assert mtu("nothere").text is None and "No such device" in str(mtu("nothere").why)


def test_what_sys_shows_of_another_namespace_is_not_taken_for_ours(tmp_path: Path) -> None:
    own = tmp_path / "sys/class/net/lo"
    own.mkdir(parents=True)
    (own / "address").write_text("02:00:00:00:00:01\n")
    (own / "speed").write_text("25000\n")
    facts = {fact.name: fact for fact in network("lo", tmp_path)}
    assert facts["speed, Mbit/s"].value is None
    assert facts["speed, Mbit/s"].why == "/sys shows another network namespace"
    (own / "address").write_text("00:00:00:00:00:00\n")  # loopback's
    assert told(network("lo", tmp_path))["speed, Mbit/s"] == "25000"
    (own / "speed").write_text("-1\n")
    assert told(network("lo", tmp_path))["speed, Mbit/s"] is None


def adapter(root: Path) -> Path:
    """A ConnectX-3 as ibstat showed it, in the files that ibstat reads."""
    own = root / "sys/class/infiniband/mlx4_0"
    port = own / "ports/1"
    (port / "counters").mkdir(parents=True)
    (own / "device").mkdir()
    for name, text in {
        "hca_type": "MT4099", "fw_ver": "2.10.0", "node_guid": "0002:c903:0031:fdc0",
        "device/current_link_width": "4", "device/max_link_width": "8",
        "device/current_link_speed": "8.0 GT/s PCIe", "device/max_link_speed": "8.0 GT/s PCIe",
        "ports/1/state": "4: ACTIVE", "ports/1/phys_state": "5: LinkUp",
        "ports/1/rate": "40 Gb/sec (4X FDR10)", "ports/1/link_layer": "InfiniBand",
        "ports/1/lid": "0x1", "ports/1/counters/symbol_error": "17",
    }.items():  # fmt: skip
        (own / name).write_text(f"{text}\n")
    return own


def test_an_infiniband_port(tmp_path: Path) -> None:
    adapter(tmp_path)
    facts = {fact.name: fact for fact in infiniband(tmp_path)}
    values = {name: fact.value for name, fact in facts.items()}
    assert values["adapters"] == "mlx4_0"
    assert values["mlx4_0 firmware"] == "2.10.0"
    assert values["mlx4_0:1 state"] == "ACTIVE"
    assert values["mlx4_0:1 physical state"] == "LinkUp"
    assert values["mlx4_0:1 rate"] == "40 Gb/sec (4X FDR10)"
    assert values["mlx4_0 PCIe width"] == "4 of 8", "half of its lanes"
    assert values["mlx4_0 PCIe speed"] == "8.0 GT/s PCIe"
    assert facts["mlx4_0:1 symbol_error"] == Fact(
        group="infiniband", name="mlx4_0:1 symbol_error", value="17", role="counter"
    )
    assert values["mlx4_0 board"] is None and "board_id" in str(facts["mlx4_0 board"].why)


def test_no_infiniband_is_a_fact_and_no_unknown(tmp_path: Path) -> None:
    assert told(infiniband(tmp_path)) == {"adapters": "none"}


NVIDIA = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>535.104.05</driver_version>
  <cuda_version>12.2</cuda_version>
  <attached_gpus>2</attached_gpus>
  <gpu id="00000000:01:00.0">
    <product_name>NVIDIA L20</product_name>
    <persistence_mode>Enabled</persistence_mode>
    <mig_mode><current_mig>N/A</current_mig></mig_mode>
    <vbios_version>95.02.70.00.01</vbios_version>
    <pci>
      <pci_gpu_link_info>
        <pcie_gen><max_link_gen>4</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
        <link_widths><max_link_width>16x</max_link_width>
          <current_link_width>16x</current_link_width></link_widths>
      </pci_gpu_link_info>
      <replay_counter>0</replay_counter>
    </pci>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
      <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
    </clocks_event_reasons>
    <ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors>
    <max_clocks><sm_clock>2520 MHz</sm_clock></max_clocks>
  </gpu>
  <gpu id="00000000:02:00.0">
    <product_name>NVIDIA L20</product_name>
    <clocks_throttle_reasons>
      <clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>
      <clocks_throttle_reason_hw_slowdown>Not Active</clocks_throttle_reason_hw_slowdown>
    </clocks_throttle_reasons>
  </gpu>
</nvidia_smi_log>
"""


def test_gpus() -> None:
    found = told(parse_query(Answer(NVIDIA)))
    assert (found["GPUs"], found["driver"]) == ("2", "535.104.05")
    assert found["0 product"] == "NVIDIA L20"
    assert found["0 slowed down by"] == "hw_thermal_slowdown"
    assert found["1 slowed down by"] == "nothing"
    assert (found["0 PCIe width"], found["0 PCIe generation"]) == ("16x", "4")
    assert found["0 uncorrected errors"] == "0"
    assert found["0 MIG"] is None and found["1 VBIOS"] is None


@pytest.mark.parametrize(
    "answer", [Answer(None, "nvidia-smi: no such program on PATH"), Answer("no xml <")]
)
def test_no_answer_of_the_driver_is_unknown(answer: Answer) -> None:
    (fact,) = parse_query(answer)
    assert fact.value is None and fact.why and "nvidia-smi" in fact.why


def test_topology_without_its_legend() -> None:
    text = """\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV8\tNODE\t0-47,96-143\t0
GPU1\tNV8\t X \tPIX\t0-47,96-143\t0
NIC0\tNODE\tPIX\t X

Legend:

  X    = Self
  GPU9 = not a row
"""
    assert parse_topology(text) == (
        "GPU0 X NV8 NODE 0-47,96-143 0; GPU1 NV8 X PIX 0-47,96-143 0; NIC0 NODE PIX X"
    )
    assert parse_topology("nothing") is None and parse_topology(None) is None


def test_nvlinks_are_counted_by_speed() -> None:
    text = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
\t Link 2: <inactive>
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)
"""
    assert parse_nvlink(text) == "2 x 26.562 GB/s, 1 x <inactive>; none"


@pytest.mark.parametrize(
    ("text", "pattern", "found"),
    [
        ("MLNX_OFED_LINUX-5.8-1.0.1.1:", r"(\S+?):?$", "MLNX_OFED_LINUX-5.8-1.0.1.1"),
        ("slurm-wlm 22.05.8", r"slurm\S* (\S+)", "22.05.8"),
        ("what is this", r"libfabric: (\S+)", None),
    ],
)
def test_versions(text: str, pattern: str, found: str | None) -> None:
    assert version(Answer(text), pattern).text == found


def test_missing_tools_are_unknown_never_a_pass() -> None:
    assert ask(("no-such-tool-here",)) == Answer(None, "no-such-tool-here: no such program on PATH")
    failed = ask(("sh", "-c", "echo broken >&2; exit 3"))
    assert failed.text is None and "code 3: broken" in str(failed.why)
    assert ask(("echo", "yes")).text == "yes"
    assert read(Path("/no/such/file")).why == "/no/such/file: No such file or directory"


def test_this_machine_knows_itself() -> None:
    found = told(identity({}))
    assert found["host name"] == socket.gethostname() and found["kernel"]
    assert found["name in Slurm"] is None
    assert agrees("no-such-host.invalid") == "does not resolve"
    assert agrees("localhost").startswith("loopback")
    cores = told(processor())
    assert cores["cores"] and cores["memory"] and cores["memory"].endswith("GiB")
