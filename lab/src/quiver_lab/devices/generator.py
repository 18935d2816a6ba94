"""``link: pg``: a router's own packet generator as source and sink, with no tester and no ports that could be the limit.

Quiver and VPP have the same commands for it. The streams run on the workers that forward them, one a worker and direction;
what leaves is counted and dropped. A generator that is asked for more than its worker can forward sends less (*unsent*): that
is the device's limit, not a tester's. Its own work is in the rate, and beside the graph's in the clocks (``pg-input``).
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quiver_lab import profiles, testbed
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.commands import Host, LocalHost, wait_for
from quiver_lab.devices.base import DeviceError, cores_of
from quiver_lab.measurer import Step, Tags
from quiver_lab.procedures.runs import GENERATOR
from quiver_lab.trial import Direction, Trial

PORTS = ("pg0", "pg1")
MACS = ("02:00:00:00:02:01", "02:00:00:00:02:02")
OPERATIONS = ("one-way", "bidirectional", "cross-connect")
KINDS = ("throughput", "mlrsearch", "loss-rate", "fixed-rate", "r-plus", "soak")
"""Procedures that ask for rates: frames of the generator carry no time."""
ENDLESS = 10**15
"""Frames of a stream: more than any trial sends. VPP's streams must have an end, and begin to count anew with each trial."""
EXACT = 200
"""To one in so many a rate is known: the clock stands between the commands that start and end the streams."""


@dataclass(frozen=True, slots=True)
class Threads:
    """On which cores a router's threads run."""

    main: int
    workers: tuple[int, ...]
    """Empty: main forwards."""

    @property
    def cores(self) -> tuple[int, ...]:
        """All of them, those that forward first."""
        return (*self.workers, *(c for c in (self.main,) if c not in self.workers))


def _all_cores(campaign: Campaign, cell: Cell) -> tuple[int, ...]:
    """The device's, then the tester's, which has nothing else to do."""
    mine = cores_of(campaign, cell)
    return (*mine, campaign.testbed.tester_core) if mine else ()


def cores(campaign: Campaign, cell: Cell) -> tuple[int, ...]:
    """Those that forward."""
    return _all_cores(campaign, cell)[: max(1, cell.workers)]


def threads(campaign: Campaign, cell: Cell, *, alone: bool) -> Threads | str:
    """Where the threads of a cell run, or why they cannot; ``alone`` says that main has a core to itself, or forwards."""
    have = _all_cores(campaign, cell)
    many = f"beside a packet generator: dut_cores and tester_core give {len(have)} cores"
    if not 1 <= cell.workers <= len(have):
        return f"{cell.workers} workers {many}"
    match cell.placement:
        case "" | "single-core" | "2-cores":
            if cell.workers == 1:
                return Threads(have[0], () if alone else have[:1])
            if not alone:
                # Main sleeps while packets flow: it does without a core of its own.
                return Threads(have[0], have[: cell.workers])
            if cell.workers >= len(have):
                return f"{cell.workers} workers and a main thread that has a core to itself, {many}"
            return Threads(have[cell.workers], have[: cell.workers])
        case "main+1-worker":
            return Threads(have[1], have[:1]) if len(have) > 1 else f"a worker and a main thread {many}"
        case _:
            return "which cores are threads of one is not told by testbed.dut_cores"


def absent(campaign: Campaign, cell: Cell, *, alone: bool = False) -> str | None:
    """What a generator inside the device cannot do."""
    if campaign.testbed.kind != "local":
        return "the packet generator is driven on the lab's own machine only"
    if cell.operation not in OPERATIONS:
        return f"the lab has no streams of the packet generator for {cell.operation}"
    kind = campaign.procedures[cell.procedure].kind
    if kind not in KINDS:
        return f"frames of a packet generator carry no time and no connections: no '{kind}'"
    found = threads(campaign, cell, alone=alone)
    return found if isinstance(found, str) else None


def start_text(of: Threads, folder: Path) -> str:
    """Start-up configuration; workers that share cores with main are spread over them by the kernel."""
    listed = f" corelist-workers {','.join(map(str, of.workers))}" if of.workers else ""
    if of.main in of.workers:
        listed = f" workers {len(of.workers)}"
    return f"unix {{ nodaemon cli-listen {folder}/cli.sock runtime-dir {folder} }}\ncpu {{ main-core {of.main}{listed} }}\n"


def port_commands() -> list[str]:
    """The two interfaces."""
    return [f"create packet-generator interface {port} hw-addr {mac}" for port, mac in zip(PORTS, MACS, strict=True)]


def neighbour_commands(cell: Cell) -> list[str]:
    """Nobody answers behind a generator: next hops are told."""
    if cell.operation == "cross-connect":
        return []
    sides = zip(PORTS, (profiles.LEFT, profiles.RIGHT), profiles.TESTER_MACS, strict=True)
    return [f"set ip neighbor {p} {s.tester4 if cell.ip == 4 else s.tester6} {mac} static" for p, s, mac in sides]


def _ends(cell: Cell, direction: int) -> tuple[str, str]:
    """Source and destination in the generator's notation, as ``profiles.py`` has them for the tester."""
    sides = (profiles.LEFT, profiles.RIGHT) if direction == 0 else (profiles.RIGHT, profiles.LEFT)
    left, right = (ipaddress.ip_network(s.hosts4 if cell.ip == 4 else s.hosts6) for s in sides)
    source, target = left[1], right[1]
    last = target + 65_533
    if cell.routes and cell.ip == 4 and cell.pattern != "sources" and direction == 0:
        target = ipaddress.IPv4Address(profiles.FIRST_ROUTE) + 1
        last = target + 256 * cell.routes - 2
    match cell.pattern:
        case "sources":
            count = min(cell.sources, 65_534)
            return (f"{source} - {left[count]}" if count > 1 else str(source)), str(target)
        case "static":
            return str(source), str(target)
        case "round-robin":
            return str(source), f"{target} - {target + 254}"
        case "uniform":
            return f"{source} + {left[65_534]}", f"{target} + {last}"


def streams(cell: Cell) -> list[tuple[str, str]]:
    """Name and command of each stream: one a worker and direction. Where main forwards it is worker 0."""
    out = []
    directions = 2 if cell.operation == "bidirectional" else 1
    # Of 64 bytes with FCS 60 are given; 42 or 62 are headers.
    size = cell.frame_bytes - 4
    payload = size - (42 if cell.ip == 4 else 62)
    for direction in range(directions):
        source, target = _ends(cell, direction)
        to = MACS[direction] if cell.operation != "cross-connect" else profiles.STATIONS[1]
        for worker in range(cell.workers):
            name = f"d{direction}w{worker}"
            largest = f"maxframe {cell.vector} " if cell.vector else ""
            out.append((
                name,
                f"packet-generator new {{ name {name} limit {ENDLESS} interface {PORTS[direction]} node ethernet-input "
                f"size {size}-{size} worker {worker} {largest}data {{ IP{cell.ip}: {profiles.TESTER_MACS[direction]} -> {to} "
                f"UDP: {source} -> {target} UDP: 1025 -> 12 incrementing {payload} }} }}",
            ))  # fmt: skip
    return out


def left(text: str) -> dict[str, int]:
    """Packets that left by each interface, from ``show interface``."""
    found: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if line[:1].strip():
            name = line.split()[0]
        if match := re.search(r"\btx packets\s+([0-9]+)", line):
            found[name] = int(match[1])
    return found


def generated(text: str) -> dict[str, int]:
    """Packets that each stream has sent since it was enabled, from ``show packet-generator``.

    What came in by the streams' interface is not that: VPP counts there what it makes, up to a vector ahead of what it sends.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        if match := re.match(r"(\S+)\s+(?:Yes|No)\s+([0-9]+)\s*limit ", line):
            found[match[1]] = int(match[2])
    return found


@dataclass
class Generated:
    """A measurer that is the device itself."""

    ask: Callable[[str], str]
    """A command of the router's."""
    names: Sequence[str]
    """Of the streams: first those of one direction, then those of the other."""
    directions: int
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep

    def measure(self, rate_pps: float, duration_s: float) -> Trial:
        """Start the streams, wait, end them, and see what came in and what left."""
        each = rate_pps * self.directions / len(self.names)
        for name in self.names:
            self.ask(f"packet-generator configure {name} rate {max(1, round(each))}")
        self.ask("clear runtime")
        before = left(self.ask("show interface"))
        self.ask("packet-generator enable-stream")
        # From answer to answer: what a command takes on its way is the same at both ends.
        began = self.clock()
        self.wait(duration_s)
        self.ask("packet-generator disable-stream")
        lasted = self.clock() - began
        after, counts = left(self.ask("show interface")), generated(self.ask("show packet-generator"))
        ways = (("left-to-right", *PORTS), ("right-to-left", *reversed(PORTS)))[: self.directions]
        found = []
        for at, (name, a, b) in enumerate(ways):
            share = len(self.names) // self.directions
            sent = sum(counts.get(stream, 0) for stream in self.names[at * share : (at + 1) * share])
            received = after.get(b, 0) - before.get(b, 0)
            asked = round(rate_pps * lasted)
            intended = sent if sent * EXACT >= asked * (EXACT - 1) else asked
            found.append(
                Direction(
                    name=name, tx=a, rx=b, intended=intended, sent=sent, unsent=intended - sent, received=min(sent, received),
                    lost=max(0, sent - received), tx_pps=sent / lasted, rx_pps=received / lasted,
                )
            )  # fmt: skip
        return Trial(
            duration_s=lasted, valid=True, clock="the lab's, around the commands", engine=GENERATOR, directions=tuple(found)
        )

    def measure_steps(self, steps: Sequence[Step]) -> Trial:
        """Not asked for: see ``absent``."""
        raise DeviceError("a packet generator is not measured in steps")

    def measure_tagged(self, rate_pps: float, duration_s: float, tags: Tags) -> Trial:
        """Not asked for: see ``absent``."""
        raise DeviceError("frames of a packet generator carry no time")

    def measure_with_reset(self, rate_pps: float, duration_s: float, reset_after_s: float) -> Trial:
        """Not asked for: see ``absent``."""
        raise DeviceError("a packet generator ends with its router")


@dataclass(frozen=True, slots=True)
class Configured:
    """How a router is made ready."""

    start: str
    """Its start-up text."""
    threads: Threads
    lines: Sequence[str]
    """What it is told beside the generator's own commands."""
    tell: Callable[[Host, str, Path, Sequence[str]], None]
    """Has it run commands: where it runs, its control program, its socket, the commands."""


@contextlib.contextmanager
def router(
    campaign: Campaign, cell: Cell, folder: Path, programs: tuple[str, str], configured: Configured
) -> Iterator[tuple[Generated, Callable[[str], str]]]:
    """A router that generates a cell's streams: its measurer, and how it is asked.

    ``programs`` are the router and its control program.
    """
    program, control = programs
    host = LocalHost(campaign.testbed.binaries)
    socket, conf, log = folder / "cli.sock", folder / "startup.conf", folder / "router.log"
    host.write(conf, configured.start)
    command = testbed.on_cores(configured.threads.cores, [program, "-c", str(conf)])

    def ask(line: str) -> str:
        return host.run([control, "-s", str(socket), *line.split()])

    with host.running(command, log=log) as process:
        wait_for(host, socket, process, what="the router", log=log)
        made = streams(cell)
        every = [*port_commands(), *configured.lines, *neighbour_commands(cell), *(c for _, c in made)]
        configured.tell(host, control, socket, every)
        measurer = Generated(ask, [name for name, _ in made], 2 if cell.operation == "bidirectional" else 1)
        check = measurer.measure(10_000, 0.1)
        for d in check.directions:
            if d.received < 0.9 * d.sent or not d.sent:
                raise DeviceError(f"no connectivity: of {d.sent} frames of the generator {d.name}, {d.received} left the graph")
        yield measurer, ask
