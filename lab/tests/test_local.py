"""The local testbed with real routers: frames through quiver, the kernel and testpmd, counted by a slow tester of our own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from quiver_lab import campaign, facts, profiles, site, testbed
from quiver_lab.commands import wait_for
from quiver_lab.devices import adapter, router
from quiver_lab.devices.base import times_absent
from quiver_lab.devices.linux import pin_device
from quiver_lab.processes import find
from quiver_lab.runner import Runner
from quiver_lab.store import Store
from quiver_lab.trial import Trial

RAW = Path(__file__).parent / "raw_tester.py"
CORE = max(os.sched_getaffinity(0))


def lacks(*programs: str) -> str | None:
    if reason := testbed.lacking():
        return reason
    return next((f"{name} is not here" for name in programs if find(name, {}) is None), None)


def measure(
    folder: Path, dut: str, operation: str, procedure: dict[str, Any], rx_mode: str = "", **more: Any
) -> tuple[Store, Any]:
    text = yaml.safe_dump(
        {
            "schema": "quiver-campaign/1", "name": "local", "quick": True, "line_rate": "10Mbps",
            "testbed": {
                "tester_core": CORE, "dut_cores": [0] if CORE else [1], "rx_mode": rx_mode,
                "binaries": {"quiver-tester": str(RAW)},
            },
            "matrix": {"dut": [dut], "operation": [operation], "procedure": ["p"], **more},
            "procedures": {"p": procedure}, "repeats": 1, "odd_runs": {"repeat_at_most": 0}, "noise": {"watch": "none"},
        }
    )  # fmt: skip
    store = Store.create(folder, campaign.parse(text), text, facts.machine(), resume=False)
    Runner(store).run()
    (record,) = store.runs()
    return store, record


def need(*programs: str) -> None:
    if reason := lacks(*programs):
        if os.environ.get("QUIVER_CI") == "1" and testbed.lacking() is None and CORE > 0:
            pytest.fail(reason)
        pytest.skip(reason)
    if CORE == 0:
        pytest.skip("one core: device and tester cannot be told apart")


def stand_in(folder: Path, name: str, text: str = "") -> str:
    """A program in its place."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def planned(dut: str, binaries: dict[str, str], cores: Sequence[int], **matrix: Any) -> campaign.Campaign:
    """A campaign of one device on memif, to be looked at and not run."""
    text = yaml.safe_dump(
        {
            "schema": "quiver-campaign/1", "name": "local", "quick": True,
            "testbed": {"binaries": {"quiver-tester": str(RAW), **binaries}, "dut_cores": list(cores)},
            "matrix": {"dut": [dut], "operation": ["one-way"], "link": ["memif"], "procedure": ["p"], **matrix},
            "procedures": {"p": FIXED},
        }
    )  # fmt: skip
    return campaign.parse(text)


FRAMES = 200
"""Of a trial, in each direction: fewer than the ring of a veth holds, so a device that is kept waiting loses none of them."""
FIXED = {"kind": "fixed-rate", "rate": f"{FRAMES}pps", "duration_s": 1}
CASES = [
    ("quiver", "one-way", ("quiver", "quiverctl")),
    ("quiver", "bidirectional", ("quiver", "quiverctl")),
    ("quiver", "nat", ("quiver", "quiverctl")),
    ("quiver", "cross-connect", ("quiver", "quiverctl")),
    ("linux", "one-way", ("ethtool",)),
    ("linux", "bidirectional", ("ethtool",)),
    ("linux", "nat", ("ethtool", "nft")),
    ("linux-tuned", "one-way", ("ethtool",)),
    ("linux-tuned", "nat", ("ethtool", "nft")),
    ("dpdk", "cross-connect", ("dpdk-testpmd",)),
]


@pytest.mark.parametrize(("dut", "operation", "programs"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_frames_go_through_and_are_counted(tmp_path: Path, dut: str, operation: str, programs: tuple[str, ...]) -> None:
    need(*programs)
    store, record = measure(tmp_path / "o", dut, operation, FIXED, routes=[5])
    logs = [p.read_text() for p in (tmp_path / "o" / "logs").glob("*")] if record.status != "done" else []
    assert record.status == "done", (record.why, logs)
    (trial,) = (Trial.model_validate(t.trial) for t in store.trials())
    assert [d.name for d in trial.directions] == ["left-to-right", "right-to-left"][: 1 + (operation == "bidirectional")]
    assert all(d.sent >= FRAMES * 0.9 for d in trial.directions)
    # Nothing here is fast enough to lose frames.
    assert trial.received >= 0.9 * sum(d.sent for d in trial.directions)
    assert record.values["latency_mean_us"] > 0
    assert record.device["cores"] == [0 if CORE else 1]
    if dut == "quiver":
        assert record.device["version"].startswith("quiver v")
        assert "ip4" in record.telemetry["runtime"] or operation == "cross-connect"
    if dut == "linux-tuned":
        settings = record.device["settings"]
        assert settings["net.ipv4.ip_early_demux"] == "0"
        assert settings["rings"].startswith(("4096", "as it was ("))
        assert settings["conntrack"].startswith("none" if operation == "one-way" else ("known connections", "as it was ("))
        assert settings["net.core.netdev_budget"] == "as it was (the whole machine's)"
    if dut.startswith("linux"):
        assert record.device["receive"] in ("threaded NAPI", "receive packet steering")
    left = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    assert f"ql{os.getpid() % 100_000}" not in left


def test_quiver_polls_where_the_campaign_says_so(tmp_path: Path) -> None:
    need("quiver", "quiverctl")
    _, record = measure(tmp_path / "o", "quiver", "one-way", FIXED, rx_mode="polling")
    assert record.status == "done", record.why
    assert record.device["rx_mode"] == "polling"
    assert record.values["latency_mean_us"] > 0


def test_a_device_without_connectivity_fails_before_it_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("ethtool")
    good = profiles.profile

    def elsewhere(cell: campaign.Cell) -> dict[str, Any]:
        """Traffic to hosts that the device has no route to."""
        made = good(cell)
        made["streams"][0]["ipv4"]["dst"] = "10.9.0.1"
        return made

    monkeypatch.setattr(profiles, "profile", elsewhere)
    store, record = measure(tmp_path / "o", "linux", "one-way", FIXED)
    assert record.status == "failed"
    assert "no connectivity" in record.why
    assert record.values == {}
    assert list(store.trials()) == []


def test_what_a_device_cannot_do_is_absent() -> None:
    text = yaml.safe_dump(
        {
            "schema": "quiver-campaign/1", "name": "local", "quick": True,
            "testbed": {"binaries": {"quiver-tester": str(RAW), "quiver": str(RAW), "quiverctl": str(RAW)}},
            "matrix": {
                "dut": ["quiver", "linux", "dpdk", "fdio-vpp"], "operation": ["one-way", "nat", "cross-connect"],
                "link": ["veth", "memif", "none"], "ip": [4, 6], "workers": [1, 2], "procedure": ["p"],
            },
            "procedures": {"p": FIXED},
        }
    )  # fmt: skip
    c = campaign.parse(text)
    why = {}
    for cell in c.cells():
        device = adapter(cell.dut, c)
        assert device is not None
        why[cell.dut, cell.operation, cell.link, cell.ip, cell.workers] = device.absent(cell)
    assert why["linux", "cross-connect", "veth", 4, 1] == "the kernel's forwarding has no cross-connect"
    assert why["linux", "one-way", "memif", 4, 1] == "the kernel has no memif"
    assert why["quiver", "nat", "veth", 6, 1] == "there is no NAT of IPv6"
    assert why["quiver", "one-way", "none", 4, 1] == "it needs a link: veth, memif or pg"
    assert why["quiver", "one-way", "veth", 4, 2] == "2 workers and a main thread need 3 cores; testbed.dut_cores gives 1"
    assert why["linux", "one-way", "veth", 4, 2] == "2 cores were asked for; testbed.dut_cores gives 1"
    if testbed.lacking() is None and find("ethtool", {}):
        assert why["linux", "one-way", "veth", 6, 1] == "IPv6 frames of the tester have 84 bytes or more"
        assert why["linux", "one-way", "veth", 4, 1] is None
    if find("vpp", {}) is None:
        assert all(str(v).startswith("vpp is not installed") for k, v in why.items() if k[0] == "fdio-vpp")
    if find("dpdk-testpmd", {}):
        assert why["dpdk", "nat", "veth", 4, 1] == "testpmd does not route"


def test_times_of_devices_take_packet_sockets_or_cards() -> None:
    text = yaml.safe_dump(
        {
            "schema": "quiver-campaign/1", "name": "local", "quick": True,
            "testbed": {"binaries": {"quiver-tester": str(RAW)}, "sender": "xdp"},
            "matrix": {"dut": ["linux"], "operation": ["one-way"], "link": ["veth"], "procedure": ["card", "tester"]},
            "procedures": {
                name: {"kind": "tagged-latency", "search_s": 1, "duration_s": 2, "tag_after_s": 1, "timestamps": name}
                for name in ("card", "tester")
            },
        }
    )  # fmt: skip
    by_card, by_tester = campaign.parse(text).cells()
    for sender, cell, why in [
        ("xdp", by_card, "times of the card need the tester's ports on packet sockets"),
        ("xdp", by_tester, "None"),
        ("af-packet", by_card, "None"),
    ]:
        c = campaign.parse(text.replace("sender: xdp", f"sender: {sender}"))
        assert str(times_absent(c, cell, site.of(c))).startswith(why)

    for drivers, clock, can in [
        (("vfio-pci", "vfio-pci"), "card", True),
        (("vfio-pci", "vfio-pci"), "kernel", False),
        (("af-packet", "af-packet"), "kernel", True),
        (("af-packet", "vfio-pci"), "card", False),
        ((), "card", False),
    ]:
        where = cast(site.Site, SimpleNamespace(tester_drivers=lambda _, drivers=drivers: drivers))
        c = campaign.parse(text.replace("timestamps: card", f"timestamps: {clock}"))
        reason = times_absent(c, by_card, where)
        assert (reason is None) == can
        assert ("bound to DPDK" in (reason or "")) == (clock == "card" and not can)


def arrived(space: testbed.Space, port: str) -> int:
    """Frames that a port of the device has had."""
    return int(space.run("cat", f"/sys/class/net/{port}/statistics/rx_packets"))


def test_a_router_that_is_reset_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("quiver", "quiverctl")
    wires: list[tuple[testbed.Space, str]] = []
    starts = [0]

    def seen(space: testbed.Space, ports: Sequence[str], *rest: Any) -> str:
        wires.append((space, ports[0]))
        return pin_device(space, ports, *rest)

    def away(*words: Any, **more: Any) -> None:
        """After the first start it is not configured before it has missed some: the tester may be late, or the reset soon."""
        starts[0] += 1
        if starts[0] > 1:
            had, until = arrived(*wires[0]), time.monotonic() + 60
            while arrived(*wires[0]) < had + 20:
                assert time.monotonic() < until, "the tester sends nothing"
                time.sleep(0.02)
        wait_for(*words, **more)

    monkeypatch.setattr(router, "pin_device", seen)
    monkeypatch.setattr(router, "wait_for", away)
    spec = {
        "kind": "reset", "search_s": 1, "resolution_pps": FRAMES, "max_rate": f"{FRAMES}pps", "duration_s": 20,
        "reset_after_s": 2,
    }  # fmt: skip
    store, record = measure(tmp_path / "o", "quiver", "one-way", spec)
    assert record.status == "done", record.why
    assert starts == [2]
    trial = Trial.model_validate([*store.trials()][-1].trial)
    # It was away for a while, and frames came on both sides of that.
    assert 0 < trial.missing < trial.intended
    assert record.values["reset_s"] == pytest.approx(trial.missing / record.values["throughput_pps"])
