"""Hardware counters of the device's cores in the middle of a trial, by ``perf stat``.

Counting begins a second after the tester is started, when its traffic flows, and lasts half the trial. What a packet took is
the events of a second over the packets of a second: meant for devices that are driven as hard as they can be, since what a core
does while nothing is there to do counts as well.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from quiver_lab.processes import CommandError, end, run, start

EVENTS = {"instructions": "instructions", "cycles": "cycles", "L1-icache-load-misses": "l1i_misses"}
"""perf's names, and those in results."""
AFTER_S = 1.0
"""When counting begins: the tester's ports are open by then."""
SHORTEST_S = 2.0
"""Shorter trials are not counted in."""
ENDS_S = 30.0
"""How much later than it should perf may tell what it counted."""


def lacking(program: str = "perf") -> str:
    """Why the processor's counters cannot be read here; empty where they can."""
    try:
        said = run(["sh", "-c", f"{program} stat -x, -e instructions true 2>&1"])
    except CommandError as error:
        return f"perf: {str(error).rsplit(': ', 1)[-1]}"
    line = next((x for x in said.splitlines() if "instructions" in x), "")
    count = line.split(",")[0]
    return "" if count.isdigit() and int(count) > 0 else f"perf stat -e instructions: {count or 'no answer'}"


def parse(text: str, seconds: float) -> dict[str, float]:
    """Events a second from ``perf stat -x,``; what was not counted is left out."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split(",")
        # A processor with two kinds of cores has an event for each: ``cpu_core/cycles/``.
        names = [ours for theirs, ours in EVENTS.items() if len(words) > 2 and theirs in words[2]]
        if names and words[0].isdigit():
            found[names[0]] = found.get(names[0], 0.0) + int(words[0]) / seconds
    return found


@contextlib.contextmanager
def counted(program: str | None, cores: Sequence[int], duration_s: float) -> Iterator[dict[str, float]]:
    """Count while a block runs a trial; events a second are in what it gives when the block has ended. Empty without perf."""
    found: dict[str, float] = {}
    if program is None or duration_s < SHORTEST_S:
        yield found
        return
    window_s = duration_s / 2
    process = start([
        program, "stat", "-x", ",", "--log-fd", "1", "--delay", f"{AFTER_S * 1000:.0f}", "-C", ",".join(map(str, cores)),
        "-e", ",".join(EVENTS), "--", "sleep", f"{AFTER_S + window_s:g}",
    ])  # fmt: skip
    try:
        yield found
        with contextlib.suppress(subprocess.TimeoutExpired):
            said, _ = process.communicate(timeout=AFTER_S + window_s + ENDS_S)
            found |= parse(said, window_s)
    finally:
        end(process)


def per_packet(counts: Mapping[str, float], packets_per_s: float) -> dict[str, float]:
    """What a packet took, and instructions a clock of the core."""
    out: dict[str, float] = {}
    if packets_per_s > 0:
        out = {f"{name}_per_packet": counts[name] / packets_per_s for name in ("instructions", "l1i_misses") if name in counts}
    if counts.get("cycles") and "instructions" in counts:
        out["ipc"] = counts["instructions"] / counts["cycles"]
    return out
