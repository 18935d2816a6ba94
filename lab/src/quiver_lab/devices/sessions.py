"""Which devices can be told to drop all connections, and how: RFC 9693 needs it before each step.

| device | command |
|---|---|
| quiver, fdio-vpp | ``clear nat44 ed sessions`` by their control programs |
| linux… | ``conntrack -F`` where it is installed, else the same request to the kernel by ``conntrack.py`` |
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path

from quiver_lab import conntrack
from quiver_lab.campaign import STATEFUL, Campaign, Cell, TcpRate
from quiver_lab.processes import CommandError, find
from quiver_lab.testbed import Space

CONTROLS = {"quiver": "quiverctl", "fdio-vpp": "vppctl"}
"""Control programs of devices with VPP's command language."""
HELD_S = 600
"""For how long the kernel is to keep connections: they must outlive a step."""


def asked(cell: Cell, campaign: Campaign) -> bool:
    """Whether a cell's procedure is one of connections."""
    return isinstance(campaign.procedures[cell.procedure], STATEFUL)


def says(cell: Cell, campaign: Campaign) -> bool:
    """Whether a cell's procedure is one of connections of TCP that say something."""
    return isinstance(campaign.procedures[cell.procedure], TcpRate)


def clears(cell: Cell, campaign: Campaign) -> bool:
    """Whether the device's table must be emptied between the steps of a cell."""
    return asked(cell, campaign) or (says(cell, campaign) and cell.operation == "nat" and _has_command(cell))


def _has_command(cell: Cell) -> bool:
    return cell.dut in CONTROLS or cell.dut.startswith("linux")


def _tcp_absent(cell: Cell, campaign: Campaign) -> str | None:
    """Why a cell's connections of TCP cannot be measured."""
    if cell.operation not in ("one-way", "nat"):
        return f"{cell.procedure} needs a device that forwards by routes: operation one-way or nat"
    if cell.ip == 6:
        return f"{cell.procedure} is measured with IPv4"
    if campaign.testbed.kind == "remote":
        return "connections are opened where the tester is on this machine"
    if campaign.testbed.sender == "xdp" and cell.link == "veth":
        return "the tester's in-kernel ports cannot open connections: sender af-packet"
    return None


def absent(cell: Cell, campaign: Campaign) -> str | None:
    """Why a cell's connections cannot be measured; none where they can, or where its procedure is another."""
    if says(cell, campaign):
        return _tcp_absent(cell, campaign)
    if not asked(cell, campaign):
        return None
    if cell.operation != "nat":
        return f"{cell.procedure} needs a connection table: operation nat"
    if campaign.testbed.kind == "simulated":
        spec = campaign.testbed.devices.get(cell.dut)
        return None if spec is None or spec.table_connections else f"{cell.dut} has no connection table (table_connections)"
    if campaign.testbed.kind == "remote":
        return "connection tables are measured where the tester is on this machine"
    if campaign.testbed.sender == "xdp" and cell.link == "veth":
        return "the tester's in-kernel ports cannot open connections: sender af-packet"
    if not _has_command(cell):
        return f"the lab knows no command that clears the connections of {cell.dut}"
    return None


def clear_command(cell: Cell, campaign: Campaign, folder: Path, device: Space | None) -> str:
    """The command of the shell that drops all connections of a device that runs."""
    if control := CONTROLS.get(cell.dut):
        words = [find(control, campaign.testbed.binaries) or control, "-s", str(folder / "cli.sock")]
        return shlex.join([*words, "clear", "nat44", "ed", "sessions"])
    if device is None:
        raise CommandError(f"{cell.dut} has no namespace whose connections could be cleared")
    installed = find("conntrack", campaign.testbed.binaries)
    words = [installed, "-F"] if installed else [sys.executable, "-I", "-S", conntrack.__file__]
    return shlex.join(device.command(words))


def hold(device: Space) -> None:
    """Have the kernel keep UDP connections longer than a step takes."""
    for name in ("nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"):
        # Where the kernel has no such setting its own times hold; steps are shorter than those by default.
        with contextlib.suppress(CommandError):
            device.run("sh", "-c", f"echo {HELD_S} > /proc/sys/net/netfilter/{name}")
