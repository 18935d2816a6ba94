"""What a machine is: facts that results carry, because figures of different machines do not compare."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quiver_lab import __version__

PROC, SYS = Path("/proc"), Path("/sys")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _cpu_model(proc: Path) -> str | None:
    for line in (_text(proc / "cpuinfo") or "").splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return None


def machine(proc: Path = PROC, sys: Path = SYS) -> dict[str, Any]:
    """Facts that stay while a campaign runs. The host's name is not among them."""
    cpu0 = sys / "devices/system/cpu/cpu0"
    flags = next((x for x in (_text(proc / "cpuinfo") or "").splitlines() if x.startswith("flags")), "")
    memory = next((x for x in (_text(proc / "meminfo") or "").splitlines() if x.startswith("MemTotal")), "")
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": _cpu_model(proc),
        "cores": os.cpu_count(),
        "virtual": "hypervisor" in flags.split(),
        "memory_kib": int(memory.split()[1]) if memory else None,
        # A virtual machine shows no governor: then its host has it, and nobody here knows which.
        "governor": _text(cpu0 / "cpufreq/scaling_governor"),
        "isolated_cores": _text(sys / "devices/system/cpu/isolated") or "",
        "smt": _text(sys / "devices/system/cpu/smt/control"),
        "clocksource": _text(sys / "devices/system/clocksource/clocksource0/current_clocksource"),
        "mitigations": _text(sys / "devices/system/cpu/vulnerabilities/spectre_v2"),
        "lab": __version__,
        "python": platform.python_version(),
    }


def core_times(proc: Path = PROC) -> dict[int, tuple[int, int]]:
    """Busy and all clock ticks of each core since boot. Time stolen by the hypervisor counts as neither."""
    out = {}
    for line in (_text(proc / "stat") or "").splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, idle, iowait, irq, softirq, *_ = (int(n) for n in numbers)
            busy = user + nice + system + irq + softirq
            out[int(name[3:])] = (busy, busy + idle + iowait)
    return out


def core_busy(before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]]) -> dict[str, float]:
    """How busy each core was between two readings, 0 to 1."""
    return {
        str(core): (after[core][0] - before[core][0]) / (after[core][1] - before[core][1])
        for core in before
        if core in after and after[core][1] > before[core][1]
    }


def now_s() -> float:
    """Seconds of a clock that never goes back."""
    return time.monotonic()
