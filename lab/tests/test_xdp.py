"""The router in the kernel's earliest hook: what it forwards, what it leaves to the kernel, and on whose cores."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from quiver_lab import campaign, site, testbed
from quiver_lab.devices import xdp
from quiver_lab.devices.linux import napi_threads
from quiver_lab.processes import CommandError
from quiver_lab.trial import Trial
from test_local import CORE, FIXED, FRAMES, RAW, measure, need

DUT_CORE = 0 if CORE else 1


def able() -> None:
    need("ethtool", "clang")
    if reason := xdp.tools_absent():
        if os.environ.get("QUIVER_CI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


def test_the_testers_ends_take_frames_of_programs_between_trials(tmp_path: Path) -> None:
    able()
    for sender, wanted in (("xdp", "on"), ("af-packet", "off")):
        document = {
            "schema": "quiver-campaign/1", "name": "x", "quick": True, "testbed": {"kind": "local", "sender": sender},
            "matrix": {"dut": ["linux"], "link": ["veth"], "procedure": ["p"]}, "procedures": {"p": FIXED},
        }  # fmt: skip
        parsed = campaign.parse(yaml.safe_dump(document))
        (cell,) = parsed.cells()
        with site.of(parsed).ground(cell, tmp_path) as ground:
            assert ground.wires is not None
            for port in ground.wires.tester_ports:
                features = ground.wires.tester.run("ethtool", "-k", port)
                assert f"generic-receive-offload: {wanted}" in features


@pytest.mark.parametrize(
    ("operation", "ip", "size"), [("one-way", 4, 64), ("bidirectional", 4, 128), ("bidirectional", 6, 128)]
)
def test_frames_are_forwarded_by_the_program(
    tmp_path: Path, operation: str, ip: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    able()
    threads: dict[str, set[int]] = {}
    attached = xdp.Xdp.tune

    def looked_at(self: xdp.Xdp, wires: testbed.Wires, *rest: Any) -> dict[str, Any]:
        found = attached(self, wires, *rest)
        for space, ports in ((wires.tester, wires.tester_ports), (wires.device, wires.device_ports)):
            for port in ports:
                (thread,) = napi_threads(space, port)
                threads[port] = os.sched_getaffinity(thread)
                assert os.sched_getscheduler(thread) == os.SCHED_FIFO, "what waits in a ring comes before what spins"
        return found

    monkeypatch.setattr(xdp.Xdp, "tune", looked_at)
    store, record = measure(tmp_path / "o", "xdp", operation, FIXED, ip=[ip], frame_bytes=[size], routes=[5])
    logs = [p.read_text() for p in (tmp_path / "o" / "logs").glob("*")] if record.status != "done" else []
    assert record.status == "done", (record.why, logs)
    (kept,) = store.trials()
    trial = Trial.model_validate(kept.trial)
    # The tester counts only what has one hop less, adds up, and comes from the device's link address.
    assert [d.lost for d in trial.directions] == [0] * (1 + (operation == "bidirectional"))
    assert all(d.received >= FRAMES for d in trial.directions)
    assert record.device["hook"] == {"left": "native", "right": "native"}
    assert record.device["receive"] == "threaded NAPI"
    assert record.device["cores"] == [DUT_CORE]
    assert {str(CORE), str(DUT_CORE)} <= set(kept.core_busy)
    # Frames that are received at the tester's ends are the tester's work, all others the device's.
    assert [*threads.values()] == [{CORE}, {CORE}, {DUT_CORE}, {DUT_CORE}]
    # The program and not the kernel behind it: connectivity was checked first, by the same frames.
    counts = record.telemetry["xdp"]["left"]
    assert counts["rx_queue_0_xdp_redirect"] >= trial.directions[0].received
    if operation == "bidirectional":
        assert record.telemetry["xdp"]["right"]["rx_queue_0_xdp_redirect"] >= trial.directions[1].received


def test_a_port_whose_driver_refuses_says_so(tmp_path: Path) -> None:
    able()
    program = tmp_path / "p.o"
    xdp.build(program)
    with testbed.veth_pairs() as wires:
        space, (left, right) = wires.device, wires.device_ports
        assert xdp.hook_of(space, left) == ""
        assert xdp.attach(space, left, program) == "native"
        # A program of one page a frame does not do for a far end that sends longer ones.
        wires.tester.run("ip", "link", "set", wires.tester_ports[1], "mtu", "9000")
        assert xdp.attach(space, right, program).startswith("generic (the driver refused: ")
        assert xdp.hook_of(space, right) == "generic"
        with pytest.raises(CommandError):
            xdp.attach(space, left, tmp_path / "none.o")


def test_what_is_missing_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reason(path: Path) -> str | None:
        monkeypatch.setenv("PATH", str(path))
        xdp.tools_absent.cache_clear()
        return xdp.tools_absent()

    def tool(name: str, text: str) -> None:
        (tmp_path / name).write_text(f"#!{shell}\n{text}\n")
        (tmp_path / name).chmod(0o755)

    shell = shutil.which("sh")
    assert shell is not None
    try:
        assert reason(tmp_path) == "clang is not installed"
        tool("clang", "echo 'error: unable to create target: no such target' >&2; echo '1 error generated.' >&2; exit 1")
        assert str(reason(tmp_path)).startswith("clang makes no programs for the kernel: ")
        assert str(reason(tmp_path)).endswith("no such target")
        tool("clang", "exit 0")
        tool("ip", "echo ip utility, iproute2-5.0")
        assert reason(tmp_path) == "ip was built without libbpf: it loads no programs"
        tool("ip", "echo ip utility, iproute2-6.1.0, libbpf 1.1.2")
        assert reason(tmp_path) is None
    finally:
        xdp.tools_absent.cache_clear()


def test_what_it_does_not_do_is_absent() -> None:
    text = yaml.safe_dump(
        {
            "schema": "quiver-campaign/1", "name": "local", "quick": True,
            "testbed": {"binaries": {"quiver-tester": str(RAW)}},
            "matrix": {
                "dut": ["xdp"], "operation": ["nat", "bridge", "cross-connect", "mix"], "link": ["veth"], "procedure": ["p"],
            },
            "procedures": {"p": FIXED},
        }
    )  # fmt: skip
    c = campaign.parse(text)
    assert [xdp.Xdp(c).absent(cell) for cell in c.cells()] == [
        "the program translates no addresses",
        "the program forwards by routes only",
        "the program forwards by routes only",
        "the lab does not set the kernel up for MIX",
    ]


def test_what_the_program_cannot_forward_is_the_kernels(tmp_path: Path) -> None:
    """A hop limit at its end: the kernel behind the program answers."""
    able()
    need("ping")
    program = tmp_path / "p.o"
    xdp.build(program)
    with testbed.veth_pairs() as wires:
        (left, right), (near, _) = wires.device_ports, wires.tester_ports
        wires.device.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for port, address in ((left, "198.18.0.1/24"), (right, "198.19.0.1/24")):
            wires.device.run("ip", "addr", "add", address, "dev", port)
            assert xdp.attach(wires.device, port, program) == "native"
        wires.tester.run("ip", "addr", "add", "198.18.0.2/24", "dev", near)
        wires.tester.run("ip", "route", "add", "198.19.0.0/24", "via", "198.18.0.1")
        # The device itself answers; through it, one hop does not do.
        wires.tester.run("ping", "-c", "1", "-W", "60", "198.19.0.1")
        said = wires.tester.run("sh", "-c", "ping -c 1 -W 60 -t 1 198.19.0.2 || true")
        assert "From 198.18.0.1 icmp_seq=1 Time to live exceeded" in said
        assert xdp.counters(wires.device, left)["rx_queue_0_xdp_redirect"] == 0
