"""A router in the kernel's earliest hook (XDP): ``xdp_forward.c``, with the kernel's own routes and neighbours.

The namespace is set up as for ``linux``; what the program does not forward, the kernel does. It is compiled by clang when a
bench is prepared, and loaded by iproute2. The driver's own hook is asked for; where a port refuses it, the program runs in the
general one, after a socket buffer has been made, and facts say so.

A frame that is redirected into a veth is received at its far end, the tester's: that end needs NAPI, as a thread on the
tester's core, or its work would be the device's.
"""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from quiver_lab import testbed
from quiver_lab.campaign import Cell
from quiver_lab.devices.base import DeviceError, here_only
from quiver_lab.devices.linux import Linux, pin_receive
from quiver_lab.processes import CommandError, run

SOURCE = Path(__file__).with_name("xdp_forward.c")
HOOKS = {1: "native", 2: "generic"}
"""Where a program is attached, by the kernel's numbers."""


def build(target: Path) -> None:
    """Compile the program; a CommandError says in one line why not."""
    run(["clang", "-target", "bpf", "-O2", "-g", "-Wall", "-Werror", "-c", str(SOURCE), "-o", str(target)], seconds=60)


@functools.cache
def tools_absent() -> str | None:
    """Why the program cannot be compiled or loaded here."""
    if shutil.which("clang") is None:
        return "clang is not installed"
    try:
        with tempfile.TemporaryDirectory(prefix="ql-") as folder:
            build(Path(folder) / "tried.o")
    except CommandError as error:
        return f"clang makes no programs for the kernel: {str(error).rpartition(': ')[2]}"
    try:
        if "libbpf" not in run(["ip", "-V"]):
            return "ip was built without libbpf: it loads no programs"
    except CommandError as error:
        return str(error)
    return None


def hook_of(space: testbed.Space, port: str) -> str:
    """Where a port's program is attached; empty: it has none."""
    (link,) = json.loads(space.run("ip", "-j", "link", "show", "dev", port))
    return HOOKS.get(link.get("xdp", {}).get("mode", 0), "")


def attach(space: testbed.Space, port: str, program: Path) -> str:
    """Attach a program to a port; says where, and why not in the driver where it is not there."""
    refused = ""
    try:
        space.run("ip", "link", "set", "dev", port, "xdpdrv", "obj", str(program), "sec", "xdp")
    except CommandError as error:
        refused = f" (the driver refused: {str(error).rpartition(': ')[2]})"
        space.run("ip", "link", "set", "dev", port, "xdpgeneric", "obj", str(program), "sec", "xdp")
    hook = hook_of(space, port)
    if not hook:
        raise DeviceError(f"{port}: the program was loaded and is not attached{refused}")
    return hook + refused


def counters(space: testbed.Space, port: str) -> dict[str, int]:
    """What a port's driver counts of programs and redirected frames."""
    found = {}
    for line in space.run("ethtool", "-S", port).splitlines():
        name, _, value = line.strip().partition(": ")
        if "xdp" in name and value.isdigit():
            found[name] = int(value)
    return found


class Xdp(Linux):
    """Forwarding by a program, next to the kernel's."""

    def absent(self, cell: Cell) -> str | None:
        """Compiler, loader, and what the program does not do."""
        if reason := here_only(self.campaign):
            return reason
        if cell.operation == "nat":
            return "the program translates no addresses"
        if cell.operation in ("bridge", "cross-connect"):
            return "the program forwards by routes only"
        return super().absent(cell) or tools_absent()

    def tune(self, wires: testbed.Wires, cell: Cell, cores: tuple[int, ...], folder: Path) -> dict[str, Any]:
        """Attach the program, and have the tester's ends take what it sends."""
        program = folder / "xdp_forward.o"
        build(program)
        for port in wires.tester_ports:
            pin_receive(wires.tester, port, (self.campaign.testbed.tester_core,))
        hooks = {}
        for port, name in zip(wires.device_ports, ("left", "right"), strict=True):
            hooks[name] = attach(wires.device, port, program)
            if pin_receive(wires.device, port, cores) != "threaded NAPI":
                raise DeviceError("this kernel has no threaded NAPI: a program would run on the core of whoever sends")
        return {"hook": hooks, "program": SOURCE.name, "compiler": run(["clang", "--version"]).splitlines()[0]}

    def counters(self, device: testbed.Space, ports: tuple[str, str]) -> dict[str, Any]:
        """As the kernel's, with what the drivers count of the program."""
        own = {name: counters(device, port) for name, port in zip(("left", "right"), ports, strict=True)}
        return super().counters(device, ports) | {"xdp": own}
