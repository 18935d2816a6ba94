"""What an adapter is. Adding a device is one file: a class with these methods, and a line in ``devices/__init__.py``."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from quiver_lab import profiles, testbed
from quiver_lab.campaign import Campaign, Cell
from quiver_lab.measurer import Measurer
from quiver_lab.tester import QuiverTester

CHECK_PPS = 200.0
CHECK_S = 1.0


class DeviceError(RuntimeError):
    """A device that is there and cannot be measured; one line."""


class ReadsTelemetry(Protocol):
    """Reads a device's counters."""

    def __call__(self) -> dict[str, Any]:
        """Counters by name."""


@dataclass(frozen=True)
class Bench:
    """A device that is configured, connected and checked."""

    measurer: Measurer
    facts: dict[str, Any] = field(default_factory=dict)
    """Version, settings, cores."""
    telemetry: ReadsTelemetry = dict


class Adapter(ABC):
    """One kind of device under test."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign

    @abstractmethod
    def absent(self, cell: Cell) -> str | None:
        """Why this cell cannot be measured here (not installed, not able to); none where it can."""

    @abstractmethod
    def bench(self, cell: Cell, folder: Path) -> AbstractContextManager[Bench]:
        """Prepare, configure, connect and check a device; take it down at the end. ``folder`` is for sockets and logs."""


SMALLEST_IPV6 = 84
"""Bytes with FCS of the smallest IPv6/UDP frame that holds the tester's signature; seed 001 used the same size."""


def lab_absent(campaign: Campaign, cell: Cell) -> str | None:
    """What keeps every adapter of the local testbed from measuring a cell."""
    if cell.ip == 6 and cell.frame_bytes < SMALLEST_IPV6:
        return f"IPv6 frames of the tester have {SMALLEST_IPV6} bytes or more"
    if testbed.tester_program(campaign.testbed) is None:
        return "quiver-tester is not installed (testbed.binaries or QUIVER_TESTER names it)"
    return testbed.lacking()


def make_tester(
    campaign: Campaign, cell: Cell, folder: Path, ports: tuple[str, str], space: testbed.Namespace | None
) -> QuiverTester:
    """A tester for a cell on ports whose texts lack the addresses only."""
    program = testbed.tester_program(campaign.testbed)
    if program is None:
        raise DeviceError("quiver-tester is not installed")
    file = folder / "profile.json"
    file.write_text(json.dumps(profiles.profile(cell), indent=1) + "\n", encoding="utf-8")
    routed = cell.operation != "cross-connect"
    texts = [
        port + (profiles.port_addresses(side, cell.ip) if routed else "")
        for port, side in zip(ports, (profiles.LEFT, profiles.RIGHT), strict=True)
    ]
    command = testbed.on_cores([campaign.testbed.tester_core], [program])
    return QuiverTester(
        command=space.command(command) if space else command,
        ports=texts,
        profile=file,
        frame_bytes=cell.frame_bytes,
        line_rate=campaign.line_rate,
    )


def check_connectivity(measurer: Measurer) -> None:
    """See that frames come through before anything is measured.

    The first trial lets both sides learn their neighbours; of what the second sends, at most a tenth may be lost.
    """
    measurer.measure(CHECK_PPS, CHECK_S)
    for d in measurer.measure(CHECK_PPS, CHECK_S).directions:
        if d.received == 0:
            raise DeviceError(f"no connectivity: of {d.sent} frames {d.name}, none came back")
        if d.lost > 0.1 * d.sent:
            raise DeviceError(f"bad connectivity: of {d.sent} frames {d.name}, {d.lost} were lost at {CHECK_PPS:g} pps")
