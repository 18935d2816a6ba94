"""Routers with VPP's command language: ``quiver`` itself, and FD.io VPP where it is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quiver_lab import profiles, testbed
from quiver_lab.campaign import Cell
from quiver_lab.devices.base import Adapter, Bench, check_connectivity, lab_absent, make_tester
from quiver_lab.processes import find, run, running, wait_for


def interface_commands(cell: Cell, ports: tuple[str, str], folder: Path) -> tuple[list[str], tuple[str, str]]:
    """Commands that make the two interfaces, and their names."""
    if cell.link == "memif":
        commands = []
        for number, side in ((1, "left"), (2, "right")):
            commands += [
                f"create memif socket id {number} filename {folder / side}.sock",
                f"create interface memif id 0 socket-id {number} master",
            ]
        return commands, ("memif1/0", "memif2/0")
    return [f"create host-interface name {p}" for p in ports], (f"host-{ports[0]}", f"host-{ports[1]}")


def scenario_commands(cell: Cell, names: tuple[str, str]) -> list[str]:
    """Commands of one operation between two interfaces."""
    commands = [f"set interface state {n} up" for n in names]
    if cell.operation == "cross-connect":
        a, b = names
        return [*commands, f"set interface l2 xconnect {a} {b}", f"set interface l2 xconnect {b} {a}"]
    for name, side in zip(names, (profiles.LEFT, profiles.RIGHT), strict=True):
        if cell.ip == 4:
            commands += [
                f"set interface ip address {name} {side.device4}/24",
                f"ip route add {side.hosts4} via {side.tester4} {name}",
            ]
        else:
            commands += [
                f"set interface ip address {name} {side.device6}/64",
                f"ip route add {side.hosts6} via {side.tester6} {name}",
            ]
    commands += [f"ip route add {p} via {profiles.RIGHT.tester4} {names[1]}" for p in profiles.extra_routes(cell.routes)]
    if cell.operation == "nat":
        first, last = profiles.NAT_POOL
        commands += [
            "nat44 plugin enable",
            f"set interface nat44 in {names[0]} out {names[1]}",
            f"nat44 add address {first} - {last}",
        ]
    return commands


class Quiver(Adapter):
    """The project's own router."""

    program, control = "quiver", "quiverctl"

    def absent(self, cell: Cell) -> str | None:
        """Programs, rights, and what the cell asks for."""
        for name in (self.program, self.control):
            if find(name, self.campaign.testbed.binaries) is None:
                return f"{name} is not installed (testbed.binaries or {name.upper()} names it)"
        if cell.link == "none":
            return "it needs a link: veth or memif"
        if cell.operation == "nat" and cell.ip == 6:
            return "there is no NAT of IPv6"
        need = cell.workers + 1 if cell.workers > 1 else 1
        if len(self.campaign.testbed.dut_cores) < need:
            have = len(self.campaign.testbed.dut_cores)
            return f"{cell.workers} workers and a main thread need {need} cores; testbed.dut_cores gives {have}"
        return lab_absent(self.campaign, cell)

    def start_text(self, cell: Cell, folder: Path) -> str:
        """The start-up configuration: the first core is the main thread's, and a single worker's where there is no other."""
        cores = self.campaign.testbed.dut_cores
        workers = cores[1 : cell.workers + 1] or cores[:1]
        listed = f" corelist-workers {','.join(map(str, workers))}" if cell.workers else ""
        if cell.workers and workers[0] == cores[0]:
            listed = f" workers {cell.workers}"
        return (
            f"unix {{ nodaemon cli-listen {folder}/cli.sock runtime-dir {folder} }}\ncpu {{ main-core {cores[0]}{listed} }}\n"
        )

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Start the router between the tester's ports."""
        binaries = self.campaign.testbed.binaries
        program, control = find(self.program, binaries), find(self.control, binaries)
        assert program is not None
        assert control is not None
        socket, log, conf = folder / "cli.sock", folder / "router.log", folder / "startup.conf"
        socket.unlink(missing_ok=True)
        conf.write_text(self.start_text(cell, folder), encoding="utf-8")
        with contextlib.ExitStack() as stack:
            command = testbed.on_cores(self.campaign.testbed.dut_cores, [program, "-c", str(conf)])
            ports, space = ("", ""), None
            if cell.link == "veth":
                wires = stack.enter_context(testbed.veth_pairs())
                command, ports, space = wires.device.command(command), wires.device_ports, wires.tester
                tester_ports = (f"af-packet:{wires.tester_ports[0]}", f"af-packet:{wires.tester_ports[1]}")
            else:
                tester_ports = tuple(f"memif:socket={folder}/{s}.sock,id=0,role=client" for s in ("left", "right"))  # type: ignore[assignment]
            process = stack.enter_context(running(command, log=log))
            wait_for(socket, process, what=self.program, log=log)

            def ask(*words: str) -> str:
                return run([control, "-s", str(socket), *words])

            made, names = interface_commands(cell, ports, folder)
            run([control, "-s", str(socket)], text="\n".join([*made, *scenario_commands(cell, names)]) + "\n", seconds=120)
            measurer = make_tester(self.campaign, cell, folder, tester_ports, space)
            check_connectivity(measurer)

            def telemetry() -> dict[str, Any]:
                return {
                    "interfaces": ask("show", "interface"),
                    "errors": ask("show", "errors"),
                    "runtime": ask("show", "runtime"),
                }

            yield Bench(
                measurer,
                {
                    "version": ask("show", "version").strip(),
                    "start": conf.read_text(encoding="utf-8"),
                    "cores": list(self.campaign.testbed.dut_cores),
                    "driver": "memif" if cell.link == "memif" else "af-packet",
                },
                telemetry,
            )


class FdioVpp(Quiver):
    """FD.io VPP's own binary, by the same commands. VPP on one core has no worker: main forwards."""

    program, control = "vpp", "vppctl"

    def start_text(self, cell: Cell, folder: Path) -> str:
        """VPP's configuration: no DPDK, no huge pages demanded."""
        return super().start_text(cell, folder) + "plugins { plugin dpdk_plugin.so { disable } }\nbuffers { page-size 4k }\n"
