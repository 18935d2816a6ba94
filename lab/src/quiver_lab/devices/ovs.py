"""Open vSwitch with its datapath in the process (``datapath_type=netdev``): an instance of its own, in the device's namespace.

Database and switch are children of ours with their files in the run's folder: the system's own Open vSwitch, where one runs, is
neither needed nor touched. ``ovs`` has packet sockets on veth, which its main thread serves; ``ovs-dpdk`` has DPDK's virtual
devices for such sockets, which a polling thread serves. It has no memif: each of its threads sends by a ring of its own, the
polling thread by the second, and where it serves a memif there are as many rings as the other side asks for, the tester one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quiver_lab import testbed
from quiver_lab.campaign import Cell
from quiver_lab.devices import ovs_flows
from quiver_lab.devices.base import (
    Adapter,
    Bench,
    DeviceError,
    check_connectivity,
    cores_of,
    here_only,
    lab_absent,
    machine_absent,
    make_tester,
    wire_ports,
)
from quiver_lab.devices.linux import link_address, pin_receive
from quiver_lab.processes import find, run, running, wait_for

TOOLS = ("ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
SCHEMAS = tuple(Path(p) / "share/openvswitch/vswitch.ovsschema" for p in ("/usr", "/usr/local"))
DPDK_PROGRAM = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
"""Where Debian has the switch that is built with DPDK."""
BRIDGE = "lab"
MEMORY_MIB = 512


@dataclass(frozen=True)
class Switch:
    """A switch that runs, and the way to speak to it."""

    folder: Path
    inside: testbed.Space
    binaries: Mapping[str, str]

    def tool(self, name: str) -> str:
        """Where one of its programs is."""
        return find(name, self.binaries) or name

    def command(self, *words: str) -> list[str]:
        """A command with this instance's folders, in its namespace."""
        folders = [f"OVS_{name}={self.folder}" for name in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR")]
        return self.inside.command(["env", *folders, *words])

    def configure(self, *words: str) -> str:
        """Ask or tell the database; waits until the switch has done it."""
        return run(self.command(self.tool("ovs-vsctl"), f"--db=unix:{self.folder}/db.sock", "--timeout=25", *words))

    def ask(self, *words: str) -> str:
        """Ask the switch itself."""
        return run(self.command(self.tool("ovs-appctl"), f"--target={self.folder}/switch.ctl", *words))

    def flow(self, *words: str) -> str:
        """Ask or tell the bridge about its entries."""
        return run(self.command(self.tool("ovs-ofctl"), *words), seconds=120)


class Ovs(Adapter):
    """The switch on packet sockets."""

    def program(self) -> str | None:
        """The switch's own program."""
        return find("ovs-vswitchd", self.campaign.testbed.binaries)

    def absent(self, cell: Cell) -> str | None:
        """Programs, rights, and what the cell asks for."""
        if reason := here_only(self.campaign):
            return reason
        if cell.link == "memif":
            return "Open vSwitch sends from more rings than the tester's memif has"
        if cell.link != "veth":
            return "it needs a link: veth"
        if cell.operation == "nat":
            return "the lab does not set Open vSwitch up for NAT"
        if cell.vector or cell.loops or cell.placement:
            return "Open vSwitch has no vectors, loops or main thread to set"
        if reason := machine_absent(self.campaign, cell):
            return reason
        if cell.workers > 1:
            return "two ports of one queue have work for one core"
        if self.program() is None:
            return (
                f"{cell.dut} is not installed ({'openvswitch-switch-dpdk' if cell.dut == 'ovs-dpdk' else 'openvswitch-switch'})"
            )
        for name in TOOLS:
            if find(name, self.campaign.testbed.binaries) is None:
                return f"{name} is not installed"
        if not any(path.exists() for path in SCHEMAS):
            return "the database schema of Open vSwitch (vswitch.ovsschema) is not installed"
        if find("ethtool", {}) is None:
            return "ethtool is not installed"
        return lab_absent(self.campaign, cell, self.site)

    def settings(self, cell: Cell, folder: Path) -> list[str]:
        """Settings of the whole switch, before it starts."""
        return []

    def interface(self, number: int, port: str) -> list[str]:
        """Type and options of one port."""
        return []

    @contextlib.contextmanager
    def started(self, cell: Cell, folder: Path, space: testbed.Space, cores: Sequence[int]) -> Iterator[Switch]:
        """Have database and switch for the length of a block."""
        program = self.program()
        assert program is not None
        switch = Switch(folder, space, self.campaign.testbed.binaries)
        schema = next(path for path in SCHEMAS if path.exists())
        run([switch.tool("ovsdb-tool"), "create", str(folder / "conf.db"), str(schema)])
        quiet = ["--verbose=console:warn", "--verbose=syslog:off"]
        database = [switch.tool("ovsdb-server"), str(folder / "conf.db"), f"--remote=punix:{folder}/db.sock",
                    f"--unixctl={folder}/db.ctl", *quiet]  # fmt: skip
        main = [program, f"unix:{folder}/db.sock", f"--unixctl={folder}/switch.ctl", *quiet]
        with contextlib.ExitStack() as stack:
            for name, what, socket in (("database", database, "db.sock"), ("switch", main, "switch.ctl")):
                log = folder / f"{name}.log"
                process = stack.enter_context(running(switch.command(*testbed.on_cores(cores, what)), log=log))
                wait_for(folder / socket, process, what=Path(what[0]).name, log=log)
                if name == "database":
                    settings = self.settings(cell, folder)
                    more = ["--", "set", "Open_vSwitch", ".", *settings] if settings else []
                    switch.configure("--no-wait", "init", *more)
            yield switch

    def set_up(self, switch: Switch, cell: Cell, ports: tuple[str, str], peers: tuple[str, str]) -> None:
        """Bridge, ports and entries of a scenario."""
        words = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
        for number, port in enumerate(ports, 1):
            kind = self.interface(number, port)
            words += ["--", "add-port", BRIDGE, port, "--", "set", "interface", port, f"ofport_request={number}", *kind]
        switch.configure(*words)
        for port in ports:
            error = switch.configure("get", "interface", port, "error").strip()
            if error != "[]":
                raise DeviceError(f"Open vSwitch does not take the port {port}: {error}")
        file = switch.folder / "flows.txt"
        file.write_text("\n".join(ovs_flows.flows(cell, peers)) + "\n", encoding="utf-8")
        switch.flow("add-flows", f"unix:{switch.folder}/{BRIDGE}.mgmt", str(file))
        for number, vlan, mac in ovs_flows.stations(cell):
            switch.ask("fdb/add", BRIDGE, ports[number - 1], str(vlan), mac)

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Start a switch between the tester's ports."""
        cores = cores_of(self.campaign, cell)[:1]
        with contextlib.ExitStack() as stack:
            wires = stack.enter_context(testbed.veth_pairs())
            ports = wires.device_ports
            left, right = (link_address(wires.tester, port) for port in wires.tester_ports)
            # What the kernel does for the device's ports is the device's work.
            receive = " and ".join(sorted({pin_receive(wires.device, port, cores) for port in ports}))
            switch = stack.enter_context(self.started(cell, folder, wires.device, cores))
            self.set_up(switch, cell, ports, (left, right))
            measurer = make_tester(
                self.campaign, cell, folder, wire_ports(self.site, cell, wires), wires.tester, where=self.site, keep=stack
            )
            check_connectivity(measurer)

            def telemetry() -> dict[str, Any]:
                return {
                    "threads": switch.ask("dpif-netdev/pmd-stats-show"),
                    "ports": switch.flow("dump-ports", f"unix:{folder}/{BRIDGE}.mgmt"),
                    "datapath": switch.ask("dpctl/dump-flows"),
                }

            found = {
                "version": switch.ask("version").splitlines()[0],
                "datapath": switch.configure("get", "bridge", BRIDGE, "datapath_type").strip(),
                "flows": len((folder / "flows.txt").read_text(encoding="utf-8").splitlines()),
                "receive": receive,
                "cores": list(cores),
            }
            yield Bench(measurer, found, telemetry)


class OvsDpdk(Ovs):
    """The switch on DPDK's virtual devices, which a thread polls."""

    def program(self) -> str | None:
        """A switch that is built with DPDK."""
        return find("ovs-vswitchd-dpdk", {"ovs-vswitchd-dpdk": DPDK_PROGRAM} | self.campaign.testbed.binaries)

    def settings(self, cell: Cell, folder: Path) -> list[str]:
        """DPDK without huge pages and cards; main and polling thread share the device's core."""
        (core,) = cores_of(self.campaign, cell)[:1]
        mask = f"{1 << core:#x}"
        # Without the second word the switch asks for a memory of its own kind that the first does not go with.
        extra = f"--no-huge --legacy-mem -m {MEMORY_MIB} --no-pci --no-telemetry --file-prefix=lab{folder.name}"
        options = {"dpdk-init": "true", "dpdk-lcore-mask": mask, "pmd-cpu-mask": mask, "dpdk-extra": f'"{extra}"'}
        return [f"other_config:{key}={value}" for key, value in options.items()]

    def interface(self, number: int, port: str) -> list[str]:
        """A virtual device."""
        return ["type=dpdk", f'options:dpdk-devargs="net_af_packet{number},iface={port}"']
