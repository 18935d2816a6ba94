"""Open vSwitch as a device: its own instance, its entries, and what it does not do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from quiver_lab import campaign
from quiver_lab.devices import ovs, ovs_flows
from quiver_lab.trial import Trial
from test_local import CORE, FIXED, FRAMES, RAW, measure, need

DUT_CORE = 0 if CORE else 1
PROGRAMS = ("ethtool", *ovs.TOOLS)


def able(dut: str) -> None:
    need(*PROGRAMS, "ovs-vswitchd")
    if dut == "ovs-dpdk" and not os.access(ovs.DPDK_PROGRAM, os.X_OK):
        if os.environ.get("QUIVER_CI") == "1":
            pytest.fail("openvswitch-switch-dpdk is not installed")
        pytest.skip("openvswitch-switch-dpdk is not installed")


def cells(binaries: dict[str, str] | None = None, **matrix: Any) -> tuple[campaign.Campaign, list[campaign.Cell]]:
    text = yaml.safe_dump(
        {
            "schema": "quiver-campaign/1", "name": "local", "quick": True,
            "testbed": {"binaries": {"quiver-tester": str(RAW), **(binaries or {})}},
            "matrix": {"dut": ["ovs"], "link": ["veth"], "procedure": ["p"], **matrix}, "procedures": {"p": FIXED},
        }
    )  # fmt: skip
    c = campaign.parse(text)
    return c, list(c.cells())


CASES = [
    ("ovs", "one-way", 4, 64),
    ("ovs", "bidirectional", 4, 64),
    ("ovs", "bidirectional", 6, 128),
    ("ovs", "cross-connect", 4, 64),
    ("ovs", "bridge", 4, 64),
    ("ovs-dpdk", "bidirectional", 4, 64),
]


@pytest.mark.parametrize(("dut", "operation", "ip", "size"), CASES)
def test_frames_go_through(tmp_path: Path, dut: str, operation: str, ip: int, size: int) -> None:
    able(dut)
    store, record = measure(tmp_path / "o", dut, operation, FIXED, ip=[ip], frame_bytes=[size], routes=[5])
    logs = [p.read_text() for p in (tmp_path / "o" / "logs").glob("*")] if record.status != "done" else []
    assert record.status == "done", (record.why, logs)
    (kept,) = store.trials()
    trial = Trial.model_validate(kept.trial)
    # The tester counts only what a router leaves behind it (one hop less, its link address), or what came unchanged.
    assert len(trial.directions) == 1 + (operation == "bidirectional")
    # An entry of the datapath that is made anew at that moment, or a thread that is kept waiting, may cost a few.
    assert all(d.sent >= FRAMES and d.lost <= 5 for d in trial.directions)
    assert {str(CORE), str(DUT_CORE)} <= set(kept.core_busy)
    assert "(Open vSwitch) " in record.device["version"]
    assert record.device["datapath"] == "netdev"
    assert record.device["cores"] == [DUT_CORE]
    assert record.device["receive"] in ("threaded NAPI", "receive packet steering")
    # Routes of IPv4, and two of the traffic; each port has an answer to ARP, or two entries that answer solicitations.
    expected = {("cross-connect", 4): 2, ("bridge", 4): 1, ("bidirectional", 6): 6}.get((operation, ip), 4 + 5)
    assert record.device["flows"] == expected
    polled = "pmd thread" if dut == "ovs-dpdk" else "main thread"
    assert polled in record.telemetry["threads"]


def test_longer_prefixes_come_first() -> None:
    _, (cell,) = cells(operation=["one-way"], routes=[300])
    found = list(ovs_flows.flows(cell, ("02:00:00:00:00:0a", "02:00:00:00:00:0b")))
    routes = {f.split("nw_dst=")[1].split(",")[0]: f for f in found if "nw_dst=" in f}
    assert len(routes) == 302
    assert routes["10.1.0.0/16"].startswith("priority=116,")
    assert routes["20.1.43.0/24"].startswith("priority=124,")
    assert routes["20.1.43.0/24"].endswith("dec_ttl,mod_dl_src:02:00:00:00:02:02,mod_dl_dst:02:00:00:00:00:0b,output:2")
    assert routes["10.0.0.0/16"].endswith("dec_ttl,mod_dl_src:02:00:00:00:02:01,mod_dl_dst:02:00:00:00:00:0a,output:1")


def test_what_it_cannot_do_is_absent_with_its_reason() -> None:
    c, found = cells(dut=["ovs", "ovs-dpdk"], operation=["nat", "one-way"], link=["veth", "memif", "none"], workers=[1, 2])
    why = {
        (cell.dut, cell.operation, cell.link, cell.workers): (ovs.OvsDpdk if cell.dut == "ovs-dpdk" else ovs.Ovs)(c).absent(
            cell
        )
        for cell in found
    }
    assert why["ovs", "one-way", "memif", 1] == "Open vSwitch sends from more rings than the tester's memif has"
    assert why["ovs-dpdk", "one-way", "none", 1] == "it needs a link: veth"
    assert why["ovs", "nat", "veth", 1] == "the lab does not set Open vSwitch up for NAT"
    assert why["ovs", "one-way", "veth", 2] == "two ports of one queue have work for one core"


def test_what_is_not_installed_is_absent(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "none")
    c, (cell,) = cells({"ovs-vswitchd": nowhere}, operation=["one-way"])
    assert ovs.Ovs(c).absent(cell) == "ovs is not installed (openvswitch-switch)"
    c, (cell,) = cells({"ovs-vswitchd-dpdk": nowhere}, operation=["one-way"], dut=["ovs-dpdk"])
    assert ovs.OvsDpdk(c).absent(cell) == "ovs-dpdk is not installed (openvswitch-switch-dpdk)"
    c, (cell,) = cells({"ovs-vswitchd": str(RAW), "ovsdb-server": nowhere}, operation=["one-way"])
    assert ovs.Ovs(c).absent(cell) == "ovsdb-server is not installed"
