"""Meters: recorded sysfs trees and an outlet of known draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from quiver_lab import facts
from quiver_lab.doctor import checks
from quiver_lab.energy import MeterError, Rapl, SimulatedPdu, per_core_second, per_watt_hour

RANGE = 262_143_328_850


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def tree(root: Path, domains: dict[str, tuple[str, int]]) -> Path:
    for name, (label, energy) in domains.items():
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{label}\n")
        (folder / "energy_uj").write_text(f"{energy}\n")
        (folder / "max_energy_range_uj").write_text(f"{RANGE}\n")
    return root


TWO_PACKAGES = {
    "intel-rapl:0": ("package-0", 1_000_000),
    "intel-rapl:0:0": ("core", 400_000),
    "intel-rapl:1": ("package-1", 5_000_000),
    "intel-rapl:2": ("psys", 9_000_000),
    "intel-rapl-mmio:0": ("package-0", 1_000_000),
}


def test_packages_are_counted_once_and_their_parts_not_again(tmp_path: Path) -> None:
    meter = Rapl(Clock(), tree(tmp_path, TWO_PACKAGES))
    before = meter.read()
    assert set(before.counters_uj) == {"intel-rapl:0", "intel-rapl:1"}
    grown = {name: (label, energy + 2_500_000) for name, (label, energy) in TWO_PACKAGES.items()}
    tree(tmp_path, grown)
    assert meter.joules(before, meter.read()) == pytest.approx(5.0)


def test_a_platform_counter_alone_is_taken(tmp_path: Path) -> None:
    assert set(Rapl(Clock(), tree(tmp_path, {"intel-rapl:0": ("psys", 7)})).read().counters_uj) == {"intel-rapl:0"}


def test_counters_wrap(tmp_path: Path) -> None:
    meter = Rapl(Clock(), tree(tmp_path, {"intel-rapl:0": ("package-0", RANGE - 1_000_000)}))
    before = meter.read()
    tree(tmp_path, {"intel-rapl:0": ("package-0", 2_000_000)})
    assert meter.joules(before, meter.read()) == pytest.approx(3.0, abs=1e-5)


def test_no_meter_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="no RAPL domains"):
        Rapl(Clock(), tmp_path)
    tree(tmp_path, {"intel-rapl:0": ("package-0", 1)})
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("what\n")
    with pytest.raises(MeterError, match="energy_uj"):
        Rapl(Clock(), tmp_path).read()


def test_an_outlet_of_known_draw() -> None:
    clock = Clock()
    meter = SimulatedPdu(clock, 180)
    before = meter.read()
    clock.now = 120
    joules = meter.joules(before, meter.read())
    assert joules == pytest.approx(180 * 120)
    # 6 Wh; of 1.2 million delivered packets each watt-hour carried a sixth.
    assert per_watt_hour(1_200_000, joules) == pytest.approx(200_000)
    assert per_watt_hour(1, 0) is None


def test_without_a_meter_it_is_core_seconds() -> None:
    assert per_core_second(3_000_000, {"1": 0.5, "2": 1.0}, 2) == pytest.approx(1_000_000)
    assert per_core_second(1, {}, 2) is None


def test_core_times_leave_stolen_time_out(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 0 10 60 0 0 0 500 0 0\ncpu1 0 0 0 100 0 0 0 0 0 0\nintr 5\n"
    )
    before = facts.core_times(tmp_path)
    (tmp_path / "stat").write_text("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 40 0 30 110 0 0 0 900 0 0\ncpu1 0 0 0 200 0 0 0 0 0 0\n")
    assert facts.core_busy(before, facts.core_times(tmp_path)) == {"0": 0.5, "1": 0.0}


def test_doctor_sees_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    (proc / "sys/vm").mkdir(parents=True)
    (proc / "sys/vm/nr_hugepages").write_text("512\n")
    (proc / "cpuinfo").write_text("model name : Known CPU\nflags : fpu hypervisor\n")
    cpu = sys / "devices/system/cpu"
    (cpu / "cpu0/cpufreq").mkdir(parents=True)
    (cpu / "cpu0/cpufreq/scaling_governor").write_text("powersave\n")
    (cpu / "isolated").write_text("2-3\n")
    said = {c.what: c for c in checks(proc, sys)}
    assert said["512 huge pages are reserved"].state == "good"
    assert said["cores 2-3 are kept free of other work"].state == "good"
    assert said["the clock rate follows the load (governor powersave)"].remedy.startswith("cpupower")
    assert any("virtual machine" in what for what in said)
    assert any("no energy meter" in what for what in said)
    tree(sys / "class/powercap", {"intel-rapl:0": ("package-0", 1)})
    assert any("energy can be measured" in c.what for c in checks(proc, sys))
