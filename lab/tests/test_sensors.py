"""Meters of hwmon and IPMI: recorded trees and answers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from quiver_lab.energy import MeterError, Sampled
from quiver_lab.meters import measure_idle
from quiver_lab.sensors import dcmi_watts, hwmon, ipmi, sensors
from test_energy import Clock

SERVER = {
    "hwmon0": {"name": "coretemp", "temp1_input": "41000", "temp1_label": "Package id 0"},
    "hwmon1": {"name": "power_meter", "power1_average": "182000000", "power1_average_interval": "1000", "power1_cap": "0"},
    "hwmon2": {"name": "amd_energy", "energy1_input": "9000000", "energy1_label": "Ecore000",
               "energy2_input": "77000000", "energy2_label": "Esocket0"},
    "hwmon3": {"name": "pmbus", "power1_input": "95000000", "power1_label": "pin", "power2_input": "88500000",
               "power2_label": "pout1"},
}  # fmt: skip
"""What a server shows: an ACPI power meter, counters of cores and sockets, a supply."""


def tree(root: Path, chips: dict[str, dict[str, str]]) -> Path:
    for chip, files in chips.items():
        (root / chip).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (root / chip / name).write_text(f"{text}\n")
    return root


def test_sensors_are_named_by_chip_and_label(tmp_path: Path) -> None:
    found = {s.name: (s.read(), s.energy) for s in sensors(tree(tmp_path, SERVER))}
    assert found == {
        "power_meter/power1_average": (182_000_000, False),
        "amd_energy/Ecore000": (9_000_000, True),
        "amd_energy/Esocket0": (77_000_000, True),
        "pmbus/pin": (95_000_000, False),
        "pmbus/pout1": (88_500_000, False),
    }


def test_the_whole_machines_meter_is_taken_by_itself(tmp_path: Path) -> None:
    clock = Clock()
    meter = hwmon(clock, root=tree(tmp_path, SERVER))
    before = meter.read()
    clock.now = 10
    assert meter.joules(before, meter.read()) == pytest.approx(1820)


def test_counters_that_were_named_are_summed(tmp_path: Path) -> None:
    second = {**SERVER["hwmon2"], "energy3_input": "5000000", "energy3_label": "Esocket1"}
    tree(tmp_path, {"hwmon2": second})
    meter = hwmon(Clock(), ["amd_energy/Esocket0", "amd_energy/Esocket1"], root=tmp_path)
    before = meter.read()
    tree(tmp_path, {"hwmon2": {"energy1_input": "10000000", "energy2_input": "80000000", "energy3_input": "5500000"}})
    assert meter.joules(before, meter.read()) == pytest.approx(3.5)
    tree(tmp_path, {"hwmon2": {"energy2_input": "1"}})
    with pytest.raises(MeterError, match="amd_energy/Esocket0: the counter went back"):
        meter.joules(before, meter.read())


def test_what_might_count_twice_has_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="no sensor of power or energy"):
        hwmon(Clock(), root=tmp_path)
    tree(tmp_path, {k: v for k, v in SERVER.items() if k != "hwmon1"})
    with pytest.raises(MeterError, match="name those to be summed in testbed.sensors: amd_energy/Ecore000, "):
        hwmon(Clock(), root=tmp_path)
    with pytest.raises(MeterError, match="no sensor nobody here; there are amd_energy"):
        hwmon(Clock(), ["nobody"], root=tmp_path)
    with pytest.raises(MeterError, match="name one kind"):
        hwmon(Clock(), ["pmbus/pin", "amd_energy/Esocket0"], root=tmp_path)
    tree(tmp_path, {"hwmon7": SERVER["hwmon3"]})
    with pytest.raises(MeterError, match="several sensors have the same name"):
        hwmon(Clock(), ["pmbus/pin"], root=tmp_path)


def test_a_sensor_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    meter = hwmon(Clock(), root=tree(tmp_path, {"hwmon1": SERVER["hwmon1"]}))
    (tmp_path / "hwmon1" / "power1_average").write_text("")
    with pytest.raises(MeterError, match="sensor power_meter/power1_average"):
        meter.read()


def test_energy_of_a_power_that_changes_is_the_area_below() -> None:
    clock, watts = Clock(), iter([100.0, 200.0, 200.0, 0.0])
    meter = Sampled("m", clock, lambda: next(watts))
    before = meter.read()
    for now in (10.0, 20.0):
        clock.now = now
        meter.read()
    clock.now = 21
    assert meter.joules(before, meter.read()) == pytest.approx(1500 + 2000 + 100)


def test_a_meter_is_asked_while_it_runs_and_its_failure_is_told() -> None:
    clock = Clock()
    asked, enough = [0], threading.Event()

    def watts() -> float:
        asked[0] += 1
        clock.now += 1
        if asked[0] >= 5:
            enough.set()
        if asked[0] > 5:
            raise MeterError("gone")
        return 40.0

    meter = Sampled("m", clock, watts, every_s=0.001)
    before = meter.read()
    with meter.running():
        assert enough.wait(60)
    assert asked[0] >= 5
    with pytest.raises(MeterError, match="gone"):
        meter.joules(before, meter.read())


ANSWER = """
    Instantaneous power reading:                   212 Watts
    Minimum during sampling period:                 14 Watts
    Maximum during sampling period:                391 Watts
    Average power reading over sample period:      205 Watts
    IPMI timestamp:                           11/22/26 08:00:00 UTC    Sampling period:          00000001 Seconds.
    Power reading state is:                   {state}
"""


def program(folder: Path, said: str, status: int = 0) -> str:
    path = folder / "ipmitool"
    path.write_text(f"#!/bin/sh\ntest \"$*\" = 'dcmi power reading' || exit 9\ncat <<'X'\n{said}\nX\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def test_the_boards_controller_is_asked_by_ipmitool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    meter = ipmi(clock, program(tmp_path, ANSWER.format(state="activated")))
    before = meter.read()
    clock.now = 3
    assert meter.joules(before, meter.read()) == pytest.approx(636)
    monkeypatch.setattr("quiver_lab.meters.time.sleep", lambda s: setattr(clock, "now", clock.now + s))
    assert measure_idle(meter) == pytest.approx(212)


def test_a_controller_without_power_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="ipmitool is not installed"):
        ipmi(Clock(), None)
    with pytest.raises(MeterError, match="power reading is deactivated"):
        ipmi(Clock(), program(tmp_path, ANSWER.format(state="deactivated")))
    with pytest.raises(MeterError, match="no instantaneous power"):
        dcmi_watts(program(tmp_path, "nothing"))
    with pytest.raises(MeterError, match="IPMI: .*Could not open device"):
        dcmi_watts(program(tmp_path, "Could not open device at /dev/ipmi0", 1))
