"""``link: pg`` for the kernel: BPF hands it frames from within (``live_frames.py``), on the cores that forward them.

The counterpart of Quiver's packet generator: no tester and no sender's ring is the limit. Each worker is a process on a core of
its own; what a frame takes from making it to leaving by the right port is done there. At the far end of that port a program
drops what comes, before anything is made of it, in the same interrupt: a thread would not get the core before its ring is full.
"""

from __future__ import annotations

import contextlib
import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quiver_lab import profiles, testbed
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.devices import generator, live_frames
from quiver_lab.devices.base import DeviceError
from quiver_lab.measurer import Step, Tags
from quiver_lab.procedures.runs import GENERATOR
from quiver_lab.processes import CommandError, end, start
from quiver_lab.trial import Direction, Trial

PROGRAM = (sys.executable, "-I", "-S", str(Path(live_frames.__file__)))
SINCE = (5, 18)
"""The kernel that has live frames."""
LOOPBACK = "00:00:00:00:00:00"
"""Of ``lo``, which the frames seem to have come in on."""


def absent(campaign: Campaign, cell: Cell) -> str | None:
    """What live frames cannot do."""
    if cell.dut != "linux":
        return "live frames are handed to the kernel as it comes: 'linux'"
    if cell.placement:
        return "the kernel has no main thread to place"
    if reason := generator.absent(campaign, cell):
        return reason
    if cell.operation != "one-way" or cell.ip != 4:
        return "the lab hands the kernel live frames of IPv4, one way"
    if cell.pattern != "static":
        return "live frames are all alike: 'pattern: static'"
    if tuple(int(x) for x in platform.release().split(".")[:2]) < SINCE:
        return f"live frames need Linux {'.'.join(map(str, SINCE))}"
    if platform.machine() not in live_frames.SYSCALL:
        return f"the lab does not know bpf(2) of {platform.machine()}"
    return testbed.lacking()


def sent_by(port: str, space: testbed.Space) -> int:
    """Packets that left by a port."""
    (link,) = json.loads(space.run("ip", "-s", "-j", "link", "show", "dev", port))
    return int(link["stats64"]["tx"]["packets"])


@dataclass
class Fed:
    """A measurer that hands the kernel frames."""

    device: testbed.Space
    port: str
    """By which they leave."""
    cores: Sequence[int]
    frame_bytes: int
    destination: str

    def command(self, core: int, rate_pps: float, duration_s: float) -> list[str]:
        """What sends on one core."""
        source = str(profiles.LEFT.hosts4.split("/")[0]).removesuffix("0") + "1"
        words = ("pass", duration_s, rate_pps, self.frame_bytes - 4, LOOPBACK, source, self.destination)
        return self.device.command(testbed.on_cores((core,), [*PROGRAM, *map(str, words)]))

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        """Send on all cores at once, and see what left."""
        before = sent_by(self.port, self.device)
        each = rate_pps / len(self.cores)
        senders: list[subprocess.Popen[str]] = []
        said = []
        try:
            senders += [start(self.command(core, each, duration_s)) for core in self.cores]
            for process in senders:
                text, _ = process.communicate(timeout=duration_s + 30)
                said.append(json.loads(text or "null"))
        except (ValueError, subprocess.TimeoutExpired) as error:
            raise CommandError(f"live frames: no answer of whoever sends them ({error})") from error
        finally:
            for process in senders:
                end(process)
        if None in said:
            raise CommandError("live frames: the kernel refused them (bpf(2): CAP_SYS_ADMIN is needed)")
        lasted = max(x["seconds"] for x in said)
        sent, left = sum(int(x["sent"]) for x in said), sent_by(self.port, self.device) - before
        asked = round(rate_pps * lasted)
        intended = sent if sent * generator.EXACT >= asked * (generator.EXACT - 1) else asked
        received = min(sent, left)
        return Trial(
            duration_s=lasted, valid=True, clock="the sender's", engine=GENERATOR,
            directions=(
                Direction(
                    name="left-to-right", tx="lo", rx=self.port, intended=intended, sent=sent, unsent=intended - sent,
                    received=received, lost=sent - received, tx_pps=sent / lasted, rx_pps=received / lasted,
                ),
            ),
        )  # fmt: skip

    def measure_steps(self, steps: Sequence[Step]) -> Trial:
        """Not asked for: see ``absent``."""
        raise DeviceError("live frames are not measured in steps")

    def measure_tagged(self, rate_pps: float, duration_s: float, tags: Tags) -> Trial:
        """Not asked for: see ``absent``."""
        raise DeviceError("live frames carry no time")

    def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Trial:
        """Not asked for: see ``absent``."""
        raise DeviceError("a kernel is not reset without its machine")


@contextlib.contextmanager
def kernel(cell: Cell, wires: testbed.Wires, cores: Sequence[int]) -> Iterator[Fed]:
    """A namespace that is configured as a router already: told its neighbour, its far end made to drop, and checked."""
    right = wires.device_ports[1]
    wires.device.run(
        "ip", "neigh", "replace", profiles.RIGHT.tester4, "lladdr", profiles.TESTER_MACS[1], "dev", right, "nud", "permanent"
    )
    target = "10.1.0.1" if not cell.routes else profiles.FIRST_ROUTE.removesuffix("0") + "1"
    fed = Fed(wires.device, right, cores, cell.frame_bytes, target)
    process = start(wires.tester.command([*PROGRAM, "drop", wires.tester_ports[1]]))
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise DeviceError("no program that drops could be attached to the far end of the kernel's port")
        check = fed.measure(10_000, 0.1)
        if check.received < 0.9 * check.sent or not check.sent:
            raise DeviceError(f"no connectivity: of {check.sent} live frames {check.received} left by {right}")
        yield fed
    finally:
        end(process)
