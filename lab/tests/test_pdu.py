"""A meter over the whole path: packets delivered, a real SNMP agent, an outlet of known draw, the report."""

from __future__ import annotations

import json
import os
import socket
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from quiver_lab.campaign import PduSpec
from quiver_lab.energy import MeterError
from quiver_lab.pdu import SnmpGet, pdu
from quiver_lab.processes import find, running
from quiver_lab.report import build, tables
from quiver_lab.runner import Runner
from quiver_lab.simulate import SimulatedDevice
from quiver_lab.trial import Trial
from test_campaign import error_of
from test_runner import make

AGENT = Path(__file__).parent / "pdu_agent.py"
COMMUNITY = "lab-test"


@dataclass
class Unit:
    """The simulated unit and the time it lives in; nothing of it moves but by the test."""

    file: Path
    port: int = 0
    now_s: float = 1000.0
    outlets: dict[str, dict[str, Any]] = field(default_factory=dict)

    def save(self) -> None:
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.outlets))
        part.rename(self.file)

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        for outlet in self.outlets.values():
            outlet["joules"] += outlet["watts"] * seconds
        self.save()

    def draw(self, watts: float) -> None:
        """What outlet 3 draws from now on."""
        self.outlets["3"]["watts"] = watts
        self.save()

    def spec(self, **more: Any) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port, "community": COMMUNITY, "outlets": [3, 4], **more}


@contextmanager
def agent(folder: Path, unit: Unit) -> Iterator[None]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        unit.port = free.getsockname()[1]
    (folder / "snmpd.conf").write_text(
        f"agentaddress udp:127.0.0.1:{unit.port}\nrocommunity {COMMUNITY} 127.0.0.1\n"
        f"pass_persist .1.3.6.1.4.1.13742.6 {sys.executable} {AGENT} {unit.file}\n"
    )
    # Whoever runs the agent, it stays on loopback, off the machine's own agent's files, and ends with us.
    script = f"SNMP_PERSISTENT_DIR={folder} exec {find('snmpd', {})} -f -Le -C -c {folder / 'snmpd.conf'} -I -smux 2>&1"
    with running(["sh", "-c", script]) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "NET-SNMP version" in line:
                break
        else:
            pytest.fail(f"snmpd did not start: {said}")
        yield


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unit]:
    if find("snmpd", {}) is None:
        if os.environ.get("QUIVER_CI") == "1":
            pytest.fail("snmpd is not here (scripts/install-packages ci)")
        pytest.skip("snmpd is not here (scripts/install-packages ci)")
    made = Unit(tmp_path / "unit.json")
    made.outlets = {
        "3": {"watts": 100.0, "joules": 7.2e6, "digits": 0},
        "4": {"watts": 60.5, "joules": 3.6e6, "digits": 1},
        "5": {"watts": 1.0, "joules": 0.0, "digits": 0, "sensors": "5"},
    }
    made.save()
    # The agent starts a program for the first answer, on a machine that is busy with other tests.
    monkeypatch.setattr("quiver_lab.pdu.ANSWERS_S", 60.0)
    with agent(tmp_path, made):
        yield made


@pytest.fixture
def timed(unit: Unit, monkeypatch: pytest.MonkeyPatch) -> Unit:
    """The lab in the unit's time: a trial takes as long as it is asked to, and no other time passes."""
    plain = SimulatedDevice.measure

    def measure(self: SimulatedDevice, rate_pps: float, duration_s: float) -> Trial:
        unit.passes(duration_s)
        return plain(self, rate_pps, duration_s)

    monkeypatch.setattr(SimulatedDevice, "measure", measure)
    monkeypatch.setattr("quiver_lab.facts.now_s", lambda: unit.now_s)
    monkeypatch.setattr("quiver_lab.meters.time", types.SimpleNamespace(sleep=unit.passes))
    return unit


OVERLOAD: dict[str, Any] = {
    "procedures": {"p": {"kind": "fixed-rate", "rate": "1000pps", "duration_s": 60}},
    "matrix": {"dut": ["a"], "link": ["none"], "frame_bytes": [512], "procedure": ["p"]},
    "repeats": 2,
}
DEVICES = {"kind": "simulated", "devices": {"a": {"capacity_pps": 750}}}


def test_a_watt_hour_of_sampled_power_delivers_what_it_must(timed: Unit, tmp_path: Path) -> None:
    store = make(tmp_path / "o", testbed={**DEVICES, "meter": "pdu", "pdu": timed.spec()}, **OVERLOAD)
    Runner(store).run()
    for record in store.trials():
        assert record.energy is not None
        assert (record.energy.joules, record.energy.seconds) == (160.5 * 60, 60)
        assert (record.energy.idle_watts, record.energy.meter, record.energy.step_j) == (160.5, "pdu-power", 0)
    (use,) = tables.uses(store).values()
    # Of 1,000 frames a second 750 are delivered; a trial draws 160.5 W for a sixtieth of an hour.
    assert use.packets_per_watt_hour == pytest.approx(45_000 / (160.5 / 60), rel=1e-12)
    assert use.bytes_per_watt_hour == pytest.approx(45_000 * 512 / (160.5 / 60), rel=1e-12)
    assert (use.watts, use.step_percent) == (160.5, None)


def test_a_counted_watt_hour_delivers_what_it_must_and_idle_is_shown(
    timed: Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = SimulatedDevice.measure

    def measure(self: SimulatedDevice, rate_pps: float, duration_s: float) -> Trial:
        timed.draw(300)
        trial = busy(self, rate_pps, duration_s)
        timed.draw(100)
        return trial

    monkeypatch.setattr(SimulatedDevice, "measure", measure)
    spec = timed.spec(outlets=[3], count="energy")
    store = make(tmp_path / "o", testbed={**DEVICES, "meter": "pdu", "pdu": spec}, **OVERLOAD)
    Runner(store).run()
    (use,) = tables.uses(store).values()
    # Two trials of 60 s at 300 W: 10 Wh, which 90,000 delivered frames took. Idle was 100 W, of which the count knows nothing.
    assert use.packets_per_watt_hour == 9000
    assert use.bytes_per_watt_hour == 9000 * 512
    assert (use.idle_watts, use.watts) == (100, 300)
    # Each trial is known to a watt-hour, and had five.
    assert use.step_percent == pytest.approx(20)
    page = build(store, tmp_path / "r").read_text(encoding="utf-8")
    assert "100.0 W" in page
    assert "300.0 W" in page
    assert "steps are 20 % of what it counted" in page


def test_a_count_that_was_reset_is_no_energy(unit: Unit) -> None:
    meter = pdu(lambda: unit.now_s, PduSpec(**unit.spec(count="energy")), COMMUNITY)
    assert meter.step_j == 7200
    before = meter.read()
    unit.passes(36)
    assert meter.joules(before, meter.read()) == pytest.approx(3600)
    unit.outlets["4"]["joules"] = 0.0
    unit.save()
    with pytest.raises(MeterError, match="outlet 4: the counter went back"):
        meter.joules(before, meter.read())


def test_what_an_outlet_does_not_tell_is_one_line(unit: Unit) -> None:
    def error(**more: Any) -> str:
        with pytest.raises(MeterError) as caught:
            pdu(lambda: 0.0, PduSpec(**unit.spec(**more)), COMMUNITY)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no number" in error(outlets=[9])
    assert error(outlets=[5], count="energy").endswith("outlet 5 does not tell its active energy")
    silent = SnmpGet("127.0.0.1", unit.port, "wrong", timeout_s=0.2, retries=0)
    with pytest.raises(MeterError, match=f"SNMP agent 127.0.0.1:{unit.port}: No SNMP response"):
        silent(["1.3.6.1.2.1.1.3.0"])


def test_a_unit_and_its_outlets_belong_together() -> None:
    bed = {"kind": "simulated", "devices": {"a": {"capacity_pps": 1}, "b": {"capacity_pps": 1}}}
    assert "'meter: pdu' and the outlets of 'pdu:' belong together" in error_of(testbed={**bed, "meter": "pdu"})
    assert "belong together" in error_of(testbed={**bed, "pdu": {"host": "pdu.example", "outlets": [1]}})
    assert "testbed.pdu.outlets" in error_of(testbed={**bed, "meter": "pdu", "pdu": {"host": "pdu.example", "outlets": []}})
    assert "'sensors' are those of 'meter: hwmon'" in error_of(testbed={**bed, "sensors": ["a/b"]})
