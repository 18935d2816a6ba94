"""grout as a device: how it is started and told, and what it cannot do. Its frames are a test where somebody has built it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quiver_lab import campaign, testbed
from quiver_lab.devices.grout import CONTROL, PROGRAM, Grout, commands, policies, readings
from quiver_lab.processes import CommandError, find
from quiver_lab.trial import Trial
from test_local import CORE, FIXED, FRAMES, measure, need, planned, stand_in


def device(folder: Path, cores: tuple[int, ...] = (1, 2), **matrix: Any) -> tuple[Grout, list[campaign.Cell]]:
    c = planned("grout", {name: stand_in(folder, name) for name in (PROGRAM, CONTROL)}, cores, **matrix)
    return Grout(c), list(c.cells())


def test_control_and_worker_have_a_core_each_where_there_are_two(tmp_path: Path) -> None:
    def cores(had: tuple[int, ...], **matrix: Any) -> tuple[int, ...]:
        grout, (cell,) = device(tmp_path, had, **matrix)
        kept = grout.arguments(cell, tmp_path)[:3]
        assert kept == ["taskset", "--cpu-list", ",".join(map(str, grout.cores(cell)))]
        return grout.cores(cell)

    assert cores((1, 2, 3), workers=[1]) == (1, 2)
    assert cores((1,), workers=[1]) == (1,)
    assert cores((1, 2), workers=[0]) == (1,)
    assert cores((1, 2), placement=["single-core"]) == (1,)
    assert cores((1, 2), placement=["main+1-worker"]) == (1, 2)


def test_it_polls_on_small_pages_and_its_table_has_room(tmp_path: Path) -> None:
    grout, (few, many) = device(tmp_path, routes=[65_000, 100_000])
    arguments = grout.arguments(few, tmp_path)
    assert {"--poll-mode", "--test-mode"} < set(arguments)
    assert arguments[-2:] == ["--socket", str(tmp_path / "cli.sock")]
    assert commands(few, ["a", "b"])[2].startswith("address add")
    assert commands(many, ["a", "b"])[2] == "interface set vrf main rib4-routes 101000"


def test_ports_addresses_and_routes_are_commands_of_grcli(tmp_path: Path) -> None:
    grout, (four, six) = device(tmp_path, ip=[4, 6], routes=[2], frame_bytes=[84])
    devices = grout.devices(four, Path("/f"), ("", ""))
    assert commands(four, devices) == [
        "interface add port left devargs net_memif0,role=server,id=0,socket=/f/left.sock,socket-abstract=no,bsize=1920",
        "interface add port right devargs net_memif1,role=server,id=0,socket=/f/right.sock,socket-abstract=no,bsize=1920",
        "address add 198.18.0.1/24 iface left",
        "route add 10.0.0.0/16 via 198.18.0.2",
        "address add 198.19.0.1/24 iface right",
        "route add 10.1.0.0/16 via 198.19.0.2",
        "route add 20.0.0.0/24 via 198.19.0.2",
        "route add 20.0.1.0/24 via 198.19.0.2",
    ]
    assert commands(six, devices)[2:] == [
        "address add 2001:2:0:1::1/64 iface left",
        "route add 2001:2:0:a::/64 via 2001:2:0:1::2",
        "address add 2001:2:0:2::1/64 iface right",
        "route add 2001:2:0:b::/64 via 2001:2:0:2::2",
    ]
    grout, (veth,) = device(tmp_path, link=["veth"])
    assert grout.devices(veth, Path("/f"), ("d0", "d1"))[1] == "net_af_packet1,iface=d1,framesz=1920,blocksz=61440"


def test_nat_ties_each_subnet_to_an_outside_address_and_has_room_for_all_sources(tmp_path: Path) -> None:
    found = policies()
    assert found[0] == ("10.0.0.0/23", "198.19.1.1")
    assert found[-1] == ("10.0.254.0/23", "198.19.1.128")
    _, (few, many) = device(tmp_path, operation=["nat"], sources=[100, 60_000])
    assert commands(few, ["a", "b"])[-2 * len(found) :][:2] == [
        "address add 198.19.1.1/32 iface right",
        "snat44 add interface right subnet 10.0.0.0/23 replace 198.19.1.1",
    ]
    assert not any(line.startswith("conntrack") for line in commands(few, ["a", "b"]))
    assert "conntrack config set max 120000" in commands(many, ["a", "b"])


def test_readings_are_of_nodes_that_the_load_went_through() -> None:
    def node(name: str, packets: int, a_batch: float, clocks: float) -> dict[str, Any]:
        return {"node": name, "batches": 1, "packets": packets, "pkts_batch": a_batch, "cycles_pkt": clocks}

    text = json.dumps(
        [
            node("eth_input", 1000, 31.5, 20.1),
            node("arp_input", 2, 1.0, 900.0),
            node("idle", 0, 0.0, 0.0),
            node("overhead", 1000, 0.0, 99.0),
        ]
    )
    assert readings(text) == {"node_eth_input_clocks": 20.1, "vector_mean_packets": 31.5}
    assert readings("[]") == {}


def test_what_it_cannot_do_is_absent_with_its_reason(tmp_path: Path) -> None:
    def why(**matrix: Any) -> str | None:
        grout, (cell,) = device(tmp_path, **matrix)
        return grout.absent(cell)

    assert why(operation=["bridge"]) == "the lab does not set grout up for bridge"
    assert why(operation=["nat"], ip=[6], frame_bytes=[84]) == "there is no NAT of IPv6"
    assert why(link=["none"]) == "it needs a link: veth or memif"
    assert str(why(vector=[256])).startswith("the lab leaves grout's vectors as they are")
    assert str(why(routes=[300_001])).startswith("grout is given no more than 300000 further routes")
    assert why(placement=["2-threads-of-one-core"]) == "which cores are threads of one is not told by testbed.dut_cores"
    assert str(why(workers=[2])).startswith("each worker of grout sends from a queue of its own")
    assert str(why(placement=["2-cores"])).startswith("each worker of grout sends from a queue of its own")
    assert why(cores=(1,), placement=["main+1-worker"]) == "placement main+1-worker needs 2 cores; testbed.dut_cores gives 1"
    assert why(operation=["nat"]) == testbed.lacking()
    grout, (cell,) = device(tmp_path)
    (tmp_path / CONTROL).chmod(0o644)
    assert str(grout.absent(cell)).startswith("grcli is not installed (scripts/build-grout;")


def test_what_it_refuses_fails_the_run_with_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "grout.log"
    log.write_text("NOTICE: started\nERR: GROUT: port: no such driver\n")
    control = stand_in(tmp_path, CONTROL, "echo 'error: command failed: Invalid argument' >&2; exit 1")
    with pytest.raises(CommandError, match=r"refused a command: .*Invalid argument.*no such driver"):
        Grout.tell(control, tmp_path / "cli.sock", ["interface add port left devargs net_none0"], log)
    assert (tmp_path / "commands.cli").read_text() == "interface add port left devargs net_none0\n"


def test_what_it_says_when_it_ends_at_once_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("ethtool")
    monkeypatch.setenv("GROUT", stand_in(tmp_path, PROGRAM, "echo 'ERR: EAL: Cannot get memory'; [ $1 = --version ]"))
    monkeypatch.setenv("GRCLI", stand_in(tmp_path, CONTROL))
    _, record = measure(tmp_path / "o", "grout", "one-way", FIXED)
    assert record.status == "failed"
    assert "grout ended at once: ERR: EAL: Cannot get memory" in record.why


@pytest.mark.parametrize(
    ("operation", "ip", "routes"), [("bidirectional", 4, 5), ("one-way", 4, 70_000), ("one-way", 6, 0), ("nat", 4, 0)]
)
def test_frames_go_through(tmp_path: Path, operation: str, ip: int, routes: int) -> None:
    need("ethtool")
    for name in (PROGRAM, CONTROL):
        if find(name, {}) is None:
            pytest.skip(f"{name} is not here: scripts/build-grout builds it ({name.upper()} names it)")
    size = 64 if ip == 4 else 84
    store, record = measure(tmp_path / "o", "grout", operation, FIXED, frame_bytes=[size], ip=[ip], routes=[routes])
    logs = [p.read_text() for p in (tmp_path / "o" / "logs").glob("*")] if record.status != "done" else []
    assert record.status == "done", (record.why, logs)
    (kept,) = store.trials()
    trial = Trial.model_validate(kept.trial)
    assert len(trial.directions) == 1 + (operation == "bidirectional")
    # It polls on the device's core, which other work on the machine may have.
    assert all(d.sent >= FRAMES and d.lost <= 5 for d in trial.directions)
    assert record.device["cores"] == [0 if CORE else 1]
    assert record.device["version"].startswith("grout v")
    assert record.values[f"node_{'ip6' if ip == 6 else 'ip'}_forward_clocks"] > 0
    assert "ip" in record.telemetry["stats"]
