"""What a machine is: facts that results carry, because figures of different machines do not compare."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quiver_lab import __version__

PROC, SYS = Path("/proc"), Path("/sys")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _line(text: str | None, *starts: str) -> str:
    return next((line for line in (text or "").splitlines() if line.startswith(starts)), "")


FILES = (
    "proc/cpuinfo",
    "proc/meminfo",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/smt/control",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/cpu/vulnerabilities/spectre_v2",
)
"""Where a machine's facts stand."""


def from_files(read: Callable[[str], str | None]) -> dict[str, Any]:
    """What ``FILES`` say of a machine; ``read`` gives their text, none where there is no such file."""
    cpu, memory, governor, isolated, smt, clock, mitigations = map(read, FILES)
    total = _line(memory, "MemTotal")
    return {
        "cpu": _line(cpu, "model name", "Model").partition(":")[2].strip() or None,
        "virtual": "hypervisor" in _line(cpu, "flags").split(),
        "memory_kib": int(total.split()[1]) if total else None,
        # A virtual machine shows no governor: then its host has it, and nobody here knows which.
        "governor": governor,
        "isolated_cores": isolated or "",
        "smt": smt,
        "clocksource": clock,
        "mitigations": mitigations,
    }


def machine(proc: Path = PROC, sys: Path = SYS) -> dict[str, Any]:
    """Facts that stay while a campaign runs. The host's name is not among them."""
    roots = {"proc": proc, "sys": sys}

    def read(name: str) -> str | None:
        root, _, rest = name.partition("/")
        return _text(roots[root] / rest)

    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        **from_files(read),
        "lab": __version__,
        "python": platform.python_version(),
    }


@dataclass(frozen=True, slots=True)
class Cores:
    """A reading of the cores' times: of the device's machine, and of the tester's where that is another."""

    device: Mapping[int, tuple[int, int]]
    tester: Mapping[int, tuple[int, int]] = field(default_factory=dict)


STEAL = 7
"""Column of ``/proc/stat`` for time that the hypervisor took."""


def core_times(proc: Path = PROC) -> dict[int, tuple[int, int]]:
    """Busy and all clock ticks of each core since boot. Time stolen by the hypervisor counts as neither."""
    return parse_core_times(_text(proc / "stat") or "")


def parse_core_times(text: str) -> dict[int, tuple[int, int]]:
    """The same from the text of ``/proc/stat``."""
    out = {}
    for line in text.splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, idle, iowait, irq, softirq, *_ = (int(n) for n in numbers)
            busy = user + nice + system + irq + softirq
            out[int(name[3:])] = (busy, busy + idle + iowait)
    return out


def stolen_s(core: int, proc: Path = PROC) -> float:
    """Seconds that the hypervisor took from a core since boot."""
    for line in (_text(proc / "stat") or "").splitlines():
        name, *numbers = line.split()
        if name == f"cpu{core}" and len(numbers) > STEAL:
            return int(numbers[STEAL]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def core_busy(before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]]) -> dict[str, float]:
    """How busy each core was between two readings, 0 to 1."""
    return {
        str(core): (after[core][0] - before[core][0]) / (after[core][1] - before[core][1])
        for core in before
        if core in after and after[core][1] > before[core][1]
    }


def cores_here() -> Cores:
    """A reading of this machine's."""
    return Cores(core_times())


def now_s() -> float:
    """Seconds of a clock that never goes back."""
    return time.monotonic()
