"""DPDK's l3fwd as a device: how it is started, and what it cannot do. Its frames are a test where somebody has built it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quiver_lab import campaign, testbed
from quiver_lab.devices.l3fwd import LPM_ROUTES, PROGRAM, L3fwd, rules
from quiver_lab.processes import find
from quiver_lab.trial import Trial
from test_local import CORE, FIXED, FRAMES, measure, need, planned, stand_in

TESTER_MACS = ("02:00:00:00:00:0a", "02:00:00:00:00:0b")


def device(program: str, cores: tuple[int, ...] = (1, 2), **matrix: Any) -> tuple[L3fwd, list[campaign.Cell]]:
    c = planned("l3fwd", {PROGRAM: program}, cores, **matrix)
    return L3fwd(c), list(c.cells())


def test_routes_are_written_as_it_reads_them(tmp_path: Path) -> None:
    _, (four, six) = device(stand_in(tmp_path, "l3fwd"), ip=[4, 6], routes=[2], frame_bytes=[84])
    assert rules(four)[0] == ["R10.0.0.0/16 0", "R10.1.0.0/16 1", "R20.0.0.0/24 1", "R20.0.1.0/24 1"]
    assert rules(six) == (
        ["R10.0.0.0/16 0", "R10.1.0.0/16 1"],
        ["R2001:0002:0000:000a:0000:0000:0000:0000/64 0", "R2001:0002:0000:000b:0000:0000:0000:0000/64 1"],
    )


def test_it_is_started_with_ports_queues_and_the_table_that_has_room(tmp_path: Path) -> None:
    l3fwd, (few, many) = device(stand_in(tmp_path, "l3fwd", "# --relax-rx-offload"), routes=[LPM_ROUTES - 2, LPM_ROUTES - 1])
    arguments = l3fwd.arguments(few, tmp_path, ("left", "right"), TESTER_MACS)
    assert "--lookup=lpm" in arguments
    assert "--lcores=0@1" in arguments
    assert "--config=(0,0,0),(1,0,0)" in arguments
    assert "--eth-dest=0,02:00:00:00:00:0a" in arguments
    assert "--relax-rx-offload" in arguments
    (file,) = (Path(a.partition("=")[2]) for a in arguments if a.startswith("--rule_ipv4="))
    assert len(file.read_text().splitlines()) == LPM_ROUTES
    assert "--lookup=fib" in l3fwd.arguments(many, tmp_path, ("left", "right"), TESTER_MACS)
    l3fwd, (two, veth) = device(stand_in(tmp_path, "l3fwd"), placement=["2-cores"], link=["memif", "veth"])
    arguments = l3fwd.arguments(two, tmp_path, ("left", "right"), TESTER_MACS)
    assert "--lcores=0@1,1@2" in arguments
    assert "--config=(0,0,0),(1,0,1)" in arguments
    assert "--relax-rx-offload" not in arguments
    assert "--vdev=net_af_packet0,iface=left" in l3fwd.arguments(veth, tmp_path, ("left", "right"), TESTER_MACS)


def test_what_it_cannot_do_is_absent_with_its_reason(tmp_path: Path) -> None:
    def why(**matrix: Any) -> str | None:
        l3fwd, (cell,) = device(stand_in(tmp_path, "l3fwd"), **matrix)
        return l3fwd.absent(cell)

    assert why(operation=["nat"]) == "l3fwd forwards by routes only"
    assert why(link=["none"]) == "it needs a link: veth or memif"
    assert why(vector=[256]) == "l3fwd's vectors and loops are fixed when it is built"
    assert str(why(placement=["main+1-worker"])).startswith("l3fwd has no main thread beside")
    assert why(routes=[65_534]) == "l3fwd has room for 65535 routes"
    assert why(cores=(1,), placement=["2-cores"]) == "2 cores were asked for; testbed.dut_cores gives 1"
    assert str(why(placement=["2-cores"], operation=["bidirectional"])).startswith("on ports of one queue")
    assert why(workers=[3]) == "two ports of one queue have work for two cores"
    assert why(routes=[65_533]) == testbed.lacking()
    l3fwd, (cell,) = device(str(tmp_path / "none"))
    assert str(l3fwd.absent(cell)).startswith("dpdk-l3fwd is not installed")


def test_what_it_says_when_it_ends_at_once_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("ethtool")
    monkeypatch.setenv(
        "DPDK_L3FWD",
        stand_in(tmp_path, "l3fwd", "echo '  Cause: Cannot configure device: err=-22, port=0'; echo more; exit 1"),
    )
    _, record = measure(tmp_path / "o", "l3fwd", "one-way", FIXED)
    assert record.status == "failed"
    assert "l3fwd ended at once: Cannot configure device: err=-22, port=0" in record.why


# IPv6 is left out: l3fwd takes no hop off, and this tester counts routed frames only.
@pytest.mark.parametrize(("operation", "routes"), [("bidirectional", 5), ("one-way", 2000)])
def test_frames_go_through(tmp_path: Path, operation: str, routes: int) -> None:
    need("ethtool")
    if find(PROGRAM, {}) is None:
        pytest.skip(f"{PROGRAM} is not here: no package has it (DPDK_L3FWD names one that was built)")
    store, record = measure(tmp_path / "o", "l3fwd", operation, FIXED, frame_bytes=[64], routes=[routes])
    logs = [p.read_text() for p in (tmp_path / "o" / "logs").glob("*")] if record.status != "done" else []
    assert record.status == "done", (record.why, logs)
    (kept,) = store.trials()
    trial = Trial.model_validate(kept.trial)
    assert len(trial.directions) == 1 + (operation == "bidirectional")
    # It polls on the device's core, which other work on the machine may have.
    assert all(d.sent >= FRAMES and d.lost <= 5 for d in trial.directions)
    assert record.device["cores"] == [0 if CORE else 1]
    assert ("--lookup=fib" in record.device["arguments"]) == (routes > LPM_ROUTES)
