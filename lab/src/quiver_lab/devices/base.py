"""What an adapter is. Adding a device is one file: a class with these methods, and a line in ``devices/__init__.py``."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from quiver_lab import profiles, site, stl, testbed
from quiver_lab.campaign import Campaign, Cell, TaggedLatency
from quiver_lab.devices import sessions
from quiver_lab.facts import Cores, cores_here
from quiver_lab.fartester import place
from quiver_lab.measurer import FullMeasurer, Measurer
from quiver_lab.operator import Operator
from quiver_lab.site import Far, Site
from quiver_lab.tester import QuiverTester
from quiver_lab.trial import Trial
from quiver_lab.twohosts import KERNEL_DRIVERS, dpdk_devices

CHECK_PPS = 400.0
CHECK_S = 0.25
CHECKS = 8
"""Trials at most until one comes through: a neighbour that does not answer at once is asked again after a second."""


class DeviceError(RuntimeError):
    """A device that is there and cannot be measured; one line."""


class ReadsTelemetry(Protocol):
    """Reads a device's counters."""

    def __call__(self) -> dict[str, Any]:
        """Counters by name."""


class ReadsValues(Protocol):
    """Reads values by name, units in the names."""

    def __call__(self) -> dict[str, float | None]:
        """Values by name."""


@dataclass(frozen=True)
class Bench:
    """A device that is configured, connected and checked."""

    measurer: FullMeasurer
    facts: dict[str, Any] = field(default_factory=dict)
    """Version, settings, cores."""
    telemetry: ReadsTelemetry = dict
    readings: ReadsValues | None = None
    """Values that only the device knows, over the trials of a run; meaningful where a run is one trial."""
    forget: Callable[[], None] | None = None
    """Has the device begin to count anew for ``readings``: before a trial is made again that the machine disturbed."""
    cores: Callable[[], Cores] = cores_here
    """Reads how busy the cores of device and tester are."""


class Adapter(ABC):
    """One kind of device under test."""

    throttles = False
    """Whether all its work is done by processes and threads on its cores, so that a hog there throttles it."""

    def __init__(self, campaign: Campaign, operator: Operator | None = None, where: Site | None = None) -> None:
        """Keep the campaign and its site; ``operator`` is for devices that are configured by hand."""
        self.campaign = campaign
        self.site = where or site.of(campaign)

    @abstractmethod
    def absent(self, cell: Cell) -> str | None:
        """Why this cell cannot be measured here (not installed, not able to); none where it can."""

    @abstractmethod
    def bench(self, cell: Cell, folder: Path) -> AbstractContextManager[Bench]:
        """Prepare, configure, connect and check a device; take it down at the end. ``folder`` is for sockets and logs."""


def numa_nodes(sys: Path = Path("/sys")) -> list[set[int]]:
    """Cores of each NUMA node; one node of all where the kernel tells none."""
    nodes = []
    for file in sorted(sys.glob("devices/system/node/node*/cpulist")):
        cores: set[int] = set()
        for part in file.read_text(encoding="ascii").strip().split(","):
            first, _, last = part.partition("-")
            if first:
                cores.update(range(int(first), int(last or first) + 1))
        if cores:
            nodes.append(cores)
    return nodes


def cores_of(campaign: Campaign, cell: Cell) -> tuple[int, ...]:
    """The device's cores that a cell may use, the main thread's first."""
    bed = campaign.testbed
    cores = bed.dut_cores
    nodes = numa_nodes() if cell.numa else []
    near = next((n for n in nodes if bed.tester_core in n), set(cores))
    if cell.numa and nodes:
        cores = tuple(c for c in cores if (c in near) == (cell.numa == "near"))
    elif cell.numa == "far":
        cores = ()
    return cores[cell.instance :]


def machine_absent(campaign: Campaign, cell: Cell) -> str | None:
    """What of a cell's cores and clock this machine does not have."""
    if cell.clock_ghz:
        return "the clock rate of this machine's cores is not set by the lab: they run as they are"
    if not cores_of(campaign, cell):
        if cell.numa == "far" and len(numa_nodes()) < 2:
            return "this machine has one NUMA node"
        have = len(campaign.testbed.dut_cores)
        where = f" on the {cell.numa} NUMA node" if cell.numa else ""
        return f"core instance {cell.instance}{where}: testbed.dut_cores gives {have} core{'s' if have != 1 else ''}"
    return None


def procedure_absent(campaign: Campaign, cell: Cell, *, resets: str | None) -> str | None:
    """What keeps a cell's procedure from being measured: by ``resets``, why there is no reset."""
    kind = campaign.procedures[cell.procedure].kind
    if kind == "reset" and resets is not None:
        return resets
    return None


def times_absent(campaign: Campaign, cell: Cell, where: Site) -> str | None:
    """What keeps frames from having the times that a cell's procedure asks for: sockets and cards tell them."""
    procedure = campaign.procedures[cell.procedure]
    if not isinstance(procedure, TaggedLatency) or procedure.timestamps == "tester":
        return None
    drivers, whose = set(where.tester_drivers(cell)), procedure.timestamps
    if drivers == {"af-packet"} or (drivers and whose == "card" and not drivers & set(KERNEL_DRIVERS)):
        return None
    cards = ", or cards bound to DPDK" if whose == "card" else ""
    return (
        f"times of the {whose} need the tester's ports on packet sockets"
        f" (sender: af-packet on veth, or a card's interface){cards}"
    )


def here_only(campaign: Campaign) -> str | None:
    """Why a device that only this machine can be set up as is not measured; none where the testbed is this machine."""
    return "the lab sets this device up on its own machine only" if campaign.testbed.kind == "remote" else None


def lab_absent(
    campaign: Campaign, cell: Cell, where: Site, *, resets: str | None = "the lab does not reset this device"
) -> str | None:
    """What keeps every adapter of the lab's own from measuring a cell; ``resets`` is none where it can be reset."""
    if reason := procedure_absent(campaign, cell, resets=resets):
        return reason
    if reason := times_absent(campaign, cell, where):
        return reason
    if cell.ip == 6 and cell.frame_bytes < profiles.SMALLEST_IPV6:
        return f"IPv6 frames of the tester have {profiles.SMALLEST_IPV6} bytes or more"
    if reason := machine_absent(campaign, cell):
        return reason
    return tester_absent(campaign, cell, where) or where.lacking()


def tester_absent(campaign: Campaign, cell: Cell, where: Site) -> str | None:
    """Why there is no tester for a cell."""
    if campaign.testbed.tester == "trex":
        return stl.absent(campaign, cell)
    if where.tester_program() is None:
        return "quiver-tester is not installed (testbed.binaries or QUIVER_TESTER names it)"
    return None


def wire_ports(where: Site, cell: Cell, wires: testbed.Wires) -> tuple[str, str]:
    """The tester's ports on wires, without addresses."""
    cores = where.tester_cores()
    more = {"xdp": f",tx-core={cores[0]},rx-core={cores[-1]}"}

    def text(at: int, driver: str, name: str) -> str:
        if driver in KERNEL_DRIVERS:
            return f"{driver}:{name}{more.get(driver, '')}"
        # A network card: its port has a core of its own where there are two.
        core = cores[at % len(cores)]
        return f"dpdk:{dpdk_devices(driver, wires.tester_ports)[at]},tx-core={core},rx-core={core}"

    both = zip(where.tester_drivers(cell), wires.tester_ports, strict=True)
    left, right = (text(at, driver, name) for at, (driver, name) in enumerate(both))
    return left, right


def make_tester(
    campaign: Campaign,
    cell: Cell,
    folder: Path,
    ports: tuple[str, str],
    space: testbed.Space | None,
    *,
    where: Site,
    keep: ExitStack,
    far: Far | None = None,
    reset: Callable[[], None] | None = None,
) -> QuiverTester | stl.TrexTester:
    """A tester for a cell on ports whose texts lack the addresses only, here or ``far``; ``reset`` resets the device.

    ``keep`` has what runs from the first trial to the end of the run.
    """
    if campaign.testbed.tester == "trex":
        return stl.make(campaign, cell, stl.Place(folder, ports, space), keep)
    program = where.tester_program()
    if program is None:
        raise DeviceError("quiver-tester is not installed")
    file = folder / "profile.json"
    file.write_text(json.dumps(profiles.profile(cell), indent=1) + "\n", encoding="utf-8")
    families = {"cross-connect": (), "bridge": (), "mix": (4, 6)}.get(cell.operation, (cell.ip,))
    texts = [
        port + profiles.port_addresses(side, families)
        for port, side in zip(ports, (profiles.LEFT, profiles.RIGHT), strict=True)
    ]
    command = testbed.on_cores(where.tester_cores(), [program])
    clear = None
    if sessions.clears(cell, campaign):
        device = space.beyond if space else None
        clear = sessions.clear_command(cell, campaign, folder, device)
        if device is not None:
            sessions.hold(device)
    tester = QuiverTester(
        command=space.command(command) if space else command,
        ports=texts,
        profile=file,
        frame_bytes=None if cell.operation == "mix" else cell.frame_bytes,
        line_rate=campaign.line_rate,
        reset=reset,
        clear=clear,
    )
    return place(tester, far, file) if far else tester


def check_connectivity(measurer: Measurer) -> None:
    """See that frames come through before anything is measured: of one short trial at most a tenth may be lost.

    The first ones may lose more, while both sides learn their neighbours and links come up.
    """
    for _ in range(CHECKS - 1):
        if _trouble(measurer.measure(CHECK_PPS, CHECK_S)) is None:
            return
    if trouble := _trouble(measurer.measure(CHECK_PPS, CHECK_S)):
        raise DeviceError(trouble)


def _trouble(trial: Trial) -> str | None:
    for d in trial.directions:
        if d.received == 0:
            return f"no connectivity: of {d.sent} frames {d.name}, none came back"
        if d.lost > 0.1 * d.sent:
            return f"bad connectivity: of {d.sent} frames {d.name}, {d.lost} were lost at {CHECK_PPS:g} pps"
    return None
