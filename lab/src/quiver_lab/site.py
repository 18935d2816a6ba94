"""Where device and tester stand: on this machine, or on two others (``farsite.py``), behind the same few methods.

An adapter asks its site what is there (``absent``), and has ground made ready for each run::

    adapter ── Site ──┬── LocalSite    namespaces and veth pairs, or memif sockets
                      └── FarSite      two hosts over SSH, and the wires between them
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from quiver_lab import facts, processes, testbed
from quiver_lab.campaign import Campaign, Cell, Link
from quiver_lab.commands import Host, LocalHost
from quiver_lab.facts import Cores
from quiver_lab.testbed import Wires


@dataclass(frozen=True, slots=True)
class Far:
    """Where the tester is when it is not here."""

    host: Host
    folder: Path
    """For its files, there."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A site made ready for one run."""

    device: Host
    folder: Path
    """On the device's machine: sockets, configuration."""
    wires: Wires | None
    """None over memif."""
    macs: tuple[str, str] | None = None
    """Link addresses that the device's ports must keep; none where it may choose."""
    drivers: tuple[str, str] = ("af-packet", "af-packet")
    """What drives the device's ports: a kernel's driver, or another for DPDK."""
    cores: Callable[[], Cores] = facts.cores_here
    far: Far | None = None


class Site(Protocol):
    """Where a campaign's device and tester stand."""

    links: tuple[Link, ...]
    """Links that a device of the lab's own may have here."""

    def absent(self, cell: Cell) -> str | None:
        """Why this site cannot carry a cell, whatever the device."""

    def program(self, name: str) -> str | None:
        """Path of a program of the device; none where it is not installed."""

    def tester_program(self) -> str | None:
        """Path of quiver-tester."""

    def tester_cores(self) -> tuple[int, ...]:
        """The tester's cores."""

    def lacking(self) -> str | None:
        """What the machines need and do not have."""

    def tester_drivers(self, cell: Cell) -> tuple[str, ...]:
        """What drives the tester's ports on wires; nothing over memif."""

    def ground(self, cell: Cell, folder: Path, *, kernel: bool = False) -> AbstractContextManager[Ground]:
        """Have ground for one run; ``folder``, here, is for logs and profiles.

        With ``kernel`` the device's ports are the kernel's interfaces, where they could be DPDK's, too.
        """


class LocalSite:
    """This machine."""

    links: tuple[Link, ...] = ("veth", "memif")

    def __init__(self, campaign: Campaign) -> None:
        self._bed = campaign.testbed

    def absent(self, cell: Cell) -> str | None:
        """Nothing beyond what the device and its cores say."""
        return None

    def program(self, name: str) -> str | None:
        """As the campaign names it, from the environment, or from PATH."""
        return processes.find(name, self._bed.binaries)

    def tester_program(self) -> str | None:
        """Path of quiver-tester."""
        return testbed.tester_program(self._bed)

    def tester_cores(self) -> tuple[int, ...]:
        """One."""
        return (self._bed.tester_core,)

    def lacking(self) -> str | None:
        """Programs and rights."""
        return testbed.lacking()

    def tester_drivers(self, cell: Cell) -> tuple[str, ...]:
        """What the campaign says, on veth."""
        return (self._bed.sender,) * 2 if cell.link == "veth" else ()

    @contextlib.contextmanager
    def ground(self, cell: Cell, folder: Path, *, kernel: bool = False) -> Iterator[Ground]:
        """Two namespaces and veth pairs; over memif nothing but the folder."""
        device = LocalHost(self._bed.binaries)
        if cell.link != "veth":
            yield Ground(device, folder, None)
            return
        with testbed.veth_pairs() as wires:
            if self._bed.sender == "xdp":
                testbed.take_from_programs(wires.tester, wires.tester_ports)
            yield Ground(device, folder, wires)


def of(campaign: Campaign) -> Site:
    """The site of a campaign's testbed."""
    if campaign.testbed.kind == "remote":
        from quiver_lab.farsite import FarSite  # noqa: PLC0415  (most campaigns need no SSH)

        return FarSite(campaign)
    return LocalSite(campaign)
