"""Energy meters. Every meter says what it counted between two readings, in joules; without one nothing is called energy.

What meters have in common is here, with RAPL and the simulated outlet; ``sensors.py`` reads hwmon and IPMI, ``pdu.py`` outlets
by SNMP, ``meters.py`` makes the one that a campaign names.

A meter that counts energy by itself is read before and after a trial. One that only tells power is asked again and again while
it runs (``Sampled``), and its energy is the area below: as good as the device's own averaging, no better.

RAPL is read from the kernel's powercap class. The counters wrap at ``max_energy_range_uj``; a domain whose parent is counted is
not counted again. The folder is a parameter, so that recorded trees stand in for a machine that has it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

POWERCAP = Path("/sys/class/powercap")
JOULES_PER_WATT_HOUR = 3600.0
NO_METER = "no energy measured"


class MeterError(RuntimeError):
    """A meter that is not there or cannot be read; one line."""


@dataclass(frozen=True, slots=True)
class Reading:
    """State of a meter's counters, in microjoules by name."""

    at_s: float
    counters_uj: Mapping[str, int]


class Meter(Protocol):
    """Something that counts energy."""

    name: str
    step_j: float = 0.0
    """Smallest step of the counter where that is coarse: no difference of readings is known better."""

    def read(self) -> Reading:
        """Read the counters now."""

    def joules(self, before: Reading, after: Reading) -> float:
        """Energy between two readings less than one wrap apart."""

    def running(self) -> AbstractContextManager[None]:
        """Have the meter do what it must between readings; counters need nothing."""
        return nullcontext()

    def for_idle(self) -> Meter:
        """The meter for the idle draw, which is measured over seconds: another one where steps are coarse."""
        return self


def forward(before: Reading, after: Reading) -> float:
    """Joules between two readings of counters that do not wrap; one that was set back is an error."""
    total = 0
    for name, end in after.counters_uj.items():
        if end < before.counters_uj[name]:
            raise MeterError(f"{name}: the counter went back, from {before.counters_uj[name]} to {end} µJ: it was reset")
        total += end - before.counters_uj[name]
    return total / 1e6


class Sampled(Meter):
    """Energy of a device that only tells power: asked every ``every_s``, straight lines between."""

    def __init__(self, name: str, clock: Callable[[], float], watts: Callable[[], float], every_s: float = 1.0) -> None:
        self.name = name
        self.every_s = every_s
        self._clock = clock
        self._watts = watts
        self._lock = threading.Lock()
        self._last: tuple[float, float] | None = None
        self._joules = 0.0
        self._failed: MeterError | None = None

    def _sample(self) -> tuple[float, float]:
        with self._lock:
            watts, now = self._watts(), self._clock()
            if self._last is not None:
                at_s, was = self._last
                self._joules += (watts + was) / 2 * (now - at_s)
            self._last = (now, watts)
            return now, self._joules

    def read(self) -> Reading:
        """Ask once more; a failure since the last reading is told here."""
        failed, self._failed = self._failed, None
        if failed is not None:
            self._last = None
            raise failed
        now, joules = self._sample()
        return Reading(now, {self.name: round(joules * 1e6)})

    def joules(self, before: Reading, after: Reading) -> float:
        """Area below the power between two readings."""
        return forward(before, after)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ask in a thread of its own for the length of a block."""
        ended = threading.Event()

        def ask() -> None:
            while not ended.wait(self.every_s):
                try:
                    self._sample()
                except MeterError as error:
                    self._failed = error

        thread = threading.Thread(target=ask, name=f"meter {self.name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class Rapl(Meter):
    """Intel's and AMD's package counters."""

    name = "rapl"

    def __init__(self, clock: Callable[[], float], root: Path = POWERCAP) -> None:
        self._clock = clock
        # intel-rapl:0 is a package, intel-rapl:0:1 a part of it, intel-rapl-mmio:0 the same package by another way; psys is the
        # whole platform, packages included.
        found = sorted(p for p in root.glob("*-rapl:*") if p.name.count(":") == 1 and (p / "energy_uj").exists())
        packages = [
            p for p in found if (p / "name").exists() and (p / "name").read_text(encoding="ascii").startswith("package")
        ]
        self._domains = packages or found
        if not self._domains:
            raise MeterError(f"no RAPL domains in {root}: this kernel or machine has no powercap counters")
        self._range = {p.name: self._number(p / "max_energy_range_uj") for p in self._domains}

    @staticmethod
    def _number(path: Path) -> int:
        try:
            return int(path.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise MeterError(f"{path}: {error}") from error

    def read(self) -> Reading:
        """Read all packages."""
        return Reading(self._clock(), {p.name: self._number(p / "energy_uj") for p in self._domains})

    def joules(self, before: Reading, after: Reading) -> float:
        """Sum of the packages' differences, each modulo its range."""
        total = 0
        for name, end in after.counters_uj.items():
            begin = before.counters_uj[name]
            # The counter runs from 0 to the range, both included.
            total += end - begin if end >= begin else end - begin + self._range[name] + 1
        return total / 1e6


class SimulatedPdu(Meter):
    """An outlet of known draw: for tests of everything that stands behind a meter."""

    name = "simulated"

    def __init__(self, clock: Callable[[], float], watts: float) -> None:
        self._clock = clock
        self._watts = watts

    def read(self) -> Reading:
        """Energy since the clock's zero."""
        now = self._clock()
        return Reading(now, {"outlet": round(now * self._watts * 1e6)})

    def joules(self, before: Reading, after: Reading) -> float:
        """Difference; this counter does not wrap."""
        return forward(before, after)


def per_watt_hour(delivered: float, joules: float) -> float | None:
    """Delivered packets or bytes per watt-hour; none where no energy was counted."""
    return delivered / (joules / JOULES_PER_WATT_HOUR) if joules > 0 else None


def per_core_second(delivered: float, busy: Mapping[str, float], seconds: float) -> float | None:
    """Delivered packets or bytes per second of a busy core: what is printed where no meter is."""
    used = sum(busy.values()) * seconds
    return delivered / used if used > 0 else None
