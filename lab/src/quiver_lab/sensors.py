"""Meters inside the machine besides RAPL: the kernel's hwmon sensors, and the board's controller by IPMI.

A machine may have many sensors that count the same energy twice (sockets and cores, supplies and the whole board). So nothing
is summed by guess: an ACPI power meter, which is the whole machine's, is taken by itself; of others, one alone is taken, and
several have to be named in the campaign.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quiver_lab.energy import Meter, MeterError, Reading, Sampled, forward
from quiver_lab.processes import CommandError, run

HWMON = Path("/sys/class/hwmon")
WHOLE_MACHINE = "power_meter"
"""What the kernel's driver of ACPI power meters calls itself."""
_POWER = re.compile(r"^power[0-9]+_(input|average)$")
_ENERGY = re.compile(r"^energy[0-9]+_input$")
_DCMI = re.compile(r"^\s*Instantaneous power reading:\s*([0-9]+)\s*Watts\s*$", re.MULTILINE)
_DCMI_STATE = re.compile(r"^\s*Power reading state is:\s*(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sensor:
    """One file of hwmon that counts energy (µJ) or tells power (µW)."""

    name: str
    """Chip and label, or chip and file where there is no label."""
    path: Path
    energy: bool

    def read(self) -> int:
        """Its number now."""
        try:
            return int(self.path.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise MeterError(f"sensor {self.name}: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def sensors(root: Path = HWMON) -> list[Sensor]:
    """All sensors of energy and power; where a chip gives a power as it is and averaged, the average."""
    found = []
    for chip in sorted(root.glob("hwmon*")):
        files = {p.name for p in chip.iterdir()} if chip.is_dir() else set()
        for file in sorted(files):
            energy = bool(_ENERGY.match(file))
            channel, _, kind = file.partition("_")
            if not energy and (not _POWER.match(file) or (kind == "input" and f"{channel}_average" in files)):
                continue
            label = _text(chip / f"{channel}_label").replace(" ", "-") or file
            found.append(Sensor(f"{_text(chip / 'name') or chip.name}/{label}", chip / file, energy))
    return found


def chosen(found: Sequence[Sensor], names: Sequence[str]) -> list[Sensor]:
    """The sensors that are to be counted: those that were named, or the one that cannot be mistaken."""
    known = ", ".join(s.name for s in found)
    if not found:
        raise MeterError("hwmon has no sensor of power or energy on this machine")
    if names:
        missing = [n for n in names if all(s.name != n for s in found)]
        if missing:
            raise MeterError(f"testbed.sensors: no sensor {', '.join(missing)} here; there are {known}")
        mine = [s for s in found if s.name in names]
        if len(mine) > len(names):
            raise MeterError(f"testbed.sensors: several sensors have the same name, so none is sure; there are {known}")
        if len({s.energy for s in mine}) > 1:
            raise MeterError("testbed.sensors: some count energy and some tell power; name one kind")
        return mine
    whole = [s for s in found if s.name.startswith(f"{WHOLE_MACHINE}/")]
    if len(whole) == 1 or len(found) == 1:
        return whole or list(found)
    raise MeterError(f"several sensors may count the same energy twice; name those to be summed in testbed.sensors: {known}")


class _Counting(Meter):
    """Sensors that count energy by themselves."""

    name = "hwmon"

    def __init__(self, clock: Callable[[], float], mine: Sequence[Sensor]) -> None:
        self._clock = clock
        self._mine = mine

    def read(self) -> Reading:
        """Read all of them."""
        return Reading(self._clock(), {s.name: s.read() for s in self._mine})

    def joules(self, before: Reading, after: Reading) -> float:
        """Sum of the differences; the kernel keeps these counters from wrapping."""
        return forward(before, after)


def hwmon(clock: Callable[[], float], names: Sequence[str] = (), every_s: float = 1.0, root: Path = HWMON) -> Meter:
    """A meter of hwmon's sensors."""
    mine = chosen(sensors(root), names)
    if mine[0].energy:
        return _Counting(clock, mine)
    return Sampled("hwmon", clock, lambda: sum(s.read() for s in mine) / 1e6, every_s)


def dcmi_watts(program: str) -> float:
    """What the board's controller says that the machine draws now (``ipmitool dcmi power reading``)."""
    try:
        said = run([program, "dcmi", "power", "reading"], seconds=10)
    except (CommandError, OSError) as error:
        raise MeterError(f"IPMI: {error}") from error
    state = _DCMI_STATE.search(said)
    if state is not None and state[1] != "activated":
        raise MeterError(f"IPMI: power reading is {state[1]}")
    watts = _DCMI.search(said)
    if watts is None:
        raise MeterError("IPMI: ipmitool's answer has no instantaneous power")
    return float(watts[1])


def ipmi(clock: Callable[[], float], program: str | None, every_s: float = 1.0) -> Meter:
    """A meter of the board's controller, asked once to see that it answers."""
    if program is None:
        raise MeterError("IPMI: ipmitool is not installed")
    dcmi_watts(program)
    return Sampled("ipmi", clock, lambda: dcmi_watts(program), every_s)
