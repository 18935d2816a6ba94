"""Routers with VPP's command language: ``quiver`` itself, and FD.io VPP where it is installed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from quiver_lab import profiles, testbed
from quiver_lab.campaign import Cell
from quiver_lab.commands import Host, wait_for
from quiver_lab.devices import generator
from quiver_lab.devices.base import (
    Adapter,
    Bench,
    DeviceError,
    check_connectivity,
    cores_of,
    lab_absent,
    machine_absent,
    make_tester,
    wire_ports,
)
from quiver_lab.devices.linux import pin_device
from quiver_lab.site import Ground
from quiver_lab.twohosts import KERNEL_DRIVERS, VIRTUAL_DRIVERS, dpdk_devices

ROUTER_MACS = ("02:00:00:00:02:01", "02:00:00:00:02:02")
"""Of the router's ports on veth: after a reset they are what the tester learned before it."""
NAMES = ("left", "right")
"""Of interfaces that may be called what one likes."""


def interface_commands(cell: Cell, ports: tuple[str, str], ground: Ground) -> tuple[list[str], tuple[str, str]]:
    """Commands that make the two interfaces, and their names."""
    if cell.link == "memif":
        commands = []
        for number, side in ((1, "left"), (2, "right")):
            commands += [
                f"create memif socket id {number} filename {ground.folder / side}.sock",
                f"create interface memif id 0 socket-id {number} master",
            ]
        return commands, ("memif1/0", "memif2/0")
    if ground.drivers[0] not in KERNEL_DRIVERS:
        # They are there from the start (start_text).
        return [], NAMES
    macs = ground.macs or ROUTER_MACS
    made, names = [], []
    for port, driver, mac, name in zip(ports, ground.drivers, macs, NAMES, strict=True):
        if driver == "af-xdp":
            own = "" if ground.macs else f" hw-addr {mac}"
            made.append(f"create interface af_xdp host-if {port} name {name}{own} num-rx-queues all")
            names.append(name)
        else:
            made.append(f"create host-interface name {port} hw-addr {mac}")
            names.append(f"host-{port}")
    return made, (names[0], names[1])


def memif_ports(cell: Cell, folder: Path) -> tuple[str, str]:
    """The tester's ports over memif, without addresses."""
    left, right = (
        f"memif:socket={folder}/{side}.sock,id=0,role=client,ring={testbed.MEMIF_RING}"
        + (f",mac={mac}" if cell.operation == "mix" else "")
        for side, mac in zip(NAMES, profiles.TESTER_MACS, strict=True)
    )
    return left, right


def scenario_commands(cell: Cell, names: tuple[str, str]) -> list[str]:
    """Commands of one operation between two interfaces."""
    commands = [f"set interface state {n} up" for n in names]
    if cell.operation == "cross-connect":
        a, b = names
        return [*commands, f"set interface l2 xconnect {a} {b}", f"set interface l2 xconnect {b} {a}"]
    if cell.operation == "bridge":
        return [*commands, *bridged(1, names)]
    for name, side in zip(names, (profiles.LEFT, profiles.RIGHT), strict=True):
        if cell.ip == 4 or cell.operation == "mix":
            commands += [
                f"set interface ip address {name} {side.device4}/24",
                f"ip route add {side.hosts4} via {side.tester4} {name}",
            ]
        if cell.ip == 6 or cell.operation == "mix":
            commands += [
                f"set interface ip address {name} {side.device6}/64",
                f"ip route add {side.hosts6} via {side.tester6} {name}",
            ]
    if cell.routes:
        commands.append(f"ip route add count {cell.routes} {profiles.FIRST_ROUTE}/24 via {profiles.RIGHT.tester4} {names[1]}")
    if cell.operation == "mix":
        tag = profiles.MIX_TAG
        tagged = (f"{names[0]}.{tag}", f"{names[1]}.{tag}")
        commands += [f"create sub-interfaces {n} {tag}" for n in names]
        commands += [f"set interface state {n} up" for n in tagged]
        commands += bridged(tag, tagged)
        if cell.link == "memif":
            sides = zip(names, (profiles.LEFT, profiles.RIGHT), profiles.TESTER_MACS, strict=True)
            commands += [f"set ip neighbor {n} {side.tester6} {mac} static" for n, side, mac in sides]
    if cell.operation == "nat":
        first, last = profiles.NAT_POOL
        commands += [
            "nat44 plugin enable",
            f"set interface nat44 in {names[0]} out {names[1]}",
            f"nat44 add address {first} - {last}",
        ]
    return commands


def bridged(domain: int, names: tuple[str, str]) -> list[str]:
    """Commands of a bridge domain of two interfaces that knows the two stations: nothing is flooded."""
    return [
        f"create bridge-domain {domain}",
        *(f"set interface l2 bridge {n} {domain}" for n in names),
        *(f"l2fib add {mac} {domain} {n} static" for mac, n in zip(profiles.STATIONS, names, strict=True)),
    ]


FORWARDING = {
    "cross-connect": ("l2-input",),
    4: ("ip4-input", "ip4-lookup", "ip4-rewrite"),
    6: ("ip6-input", "ip6-lookup", "ip6-rewrite"),
}
"""Nodes whose loops a cell sets, by operation or family."""


def experiment_commands(cell: Cell) -> list[str]:
    """Commands of a cell's vectors and loops. Its figures are of nodes, so each node runs by itself."""
    commands = ["set fusion off"] if cell.vector or cell.loops else []
    commands += [f"set vector-size {cell.vector}"] if cell.vector else []
    if cell.loops:
        width, prefetch = cell.loops.split("p")
        families = (4, 6) if cell.operation == "mix" else (cell.ip,)
        routed = [n for f in families for n in FORWARDING[f]]
        nodes = FORWARDING["cross-connect"] if cell.operation in ("cross-connect", "bridge") else routed
        commands += [f"set node {n} multi-loop {width} prefetch {prefetch}" for n in ("ethernet-input", *nodes)]
    return commands


def runtime_readings(text: str) -> dict[str, float | None]:
    """Packets a call of the node that all packets pass, and clocks a packet of each node, from ``show runtime``."""
    found_nodes: dict[str, tuple[float, float, float]] = {}
    for line in text.splitlines():
        words = line.split()
        # Name, state (of one or two words), calls, vectors, suspends, clocks, vectors a call.
        if len(words) < 7:
            continue
        try:
            packets, clocks, a_call = float(words[-4]), float(words[-2]), float(words[-1])
        except ValueError:
            continue
        # A node that ran within another one's loop has no clocks of its own.
        if words[1] == "fused" and clocks == 0:
            continue
        if packets > found_nodes.get(words[0], (0.0, 0.0, 0.0))[0]:
            found_nodes[words[0]] = (packets, clocks, a_call)
    # What a few packets went through beside the load tells nothing about it.
    floor = max((n for n, *_ in found_nodes.values()), default=0.0) / 100
    values: dict[str, float | None] = {
        f"node_{name}_clocks": clocks for name, (packets, clocks, _) in found_nodes.items() if packets >= floor
    }
    if "ethernet-input" in found_nodes:
        values["vector_mean_packets"] = found_nodes["ethernet-input"][2]
    lookups = [values[key] for key in ("node_ip4-lookup_clocks", "node_ip6-lookup_clocks") if key in values]
    if len(lookups) == 1:
        values["lookup_clocks"] = lookups[0]
    return values


COMMANDS_S = 120.0
"""For how long a router may take to do all that it is told at first."""
PLACEMENTS = {"single-core": (1, 1), "main+1-worker": (1, 2), "2-threads-of-one-core": (2, 2), "2-cores": (2, 3)}
"""Workers and cores of each placement."""


class Quiver(Adapter):
    """The project's own router."""

    program, control = "quiver", "quiverctl"
    throttles = True
    main_alone = False
    """Whether its main thread has a core to itself, or forwards, so that it shares none with a worker."""

    def absent(self, cell: Cell) -> str | None:
        """Programs, rights, and what the cell asks for."""
        if reason := self.site.absent(cell):
            return reason
        if cell.link == "pg":
            of_machine = machine_absent(self.campaign, cell)
            return of_machine or generator.absent(self.campaign, cell, alone=self.main_alone) or self.missing()
        if cell.link not in self.site.links:
            return "it needs a link: veth, memif or pg"
        if cell.operation == "nat" and cell.ip == 6:
            return "there is no NAT of IPv6"
        if reason := machine_absent(self.campaign, cell):
            return reason
        have = len(cores_of(self.campaign, cell))
        if cell.placement == "2-threads-of-one-core":
            return "which cores are threads of one is not told by testbed.dut_cores"
        if cell.placement and have < (need := PLACEMENTS[cell.placement][1]):
            return f"placement {cell.placement} needs {need} cores; testbed.dut_cores gives {have}"
        need = cell.workers + 1 if cell.workers > 1 else 1
        if have < need:
            return f"{cell.workers} workers and a main thread need {need} cores; testbed.dut_cores gives {have}"
        if reason := self.missing():
            return reason
        if cell.link == "veth" and self.site.program("ethtool") is None:
            return "ethtool is not installed"
        # Over memif the tester's own links would go with the router.
        how = None if cell.link != "memif" else "over memif the tester loses its ports with the router: reset needs veth"
        return lab_absent(self.campaign, cell, self.site, resets=how)

    def missing(self) -> str | None:
        """Which program is not installed."""
        for name in (self.program, self.control):
            if self.site.program(name) is None:
                return f"{name} is not installed (testbed.binaries or {name.upper()} names it)"
        return None

    def driver(self) -> str:
        """What drives its ports on veth."""
        return self.campaign.testbed.driver

    def experiment(self, cell: Cell) -> list[str]:
        """Commands of vectors and loops."""
        return experiment_commands(cell)

    def start_text(self, cell: Cell, folder: Path, cards: Sequence[str] = ()) -> str:
        """The start-up configuration, with the DPDK ports ``cards``.

        The first core is the main thread's, and a single worker's where there is no other.
        """
        cores = cores_of(self.campaign, cell)
        if cell.placement:
            cores = cores[: PLACEMENTS[cell.placement][1]]
        workers = cores[1 : cell.workers + 1] or cores[:1]
        listed = f" corelist-workers {','.join(map(str, workers))}" if cell.workers else ""
        if cell.workers and workers[0] == cores[0]:
            listed = f" workers {cell.workers}"
        words = ["vdev" if card.startswith(VIRTUAL_DRIVERS) else "dev" for card in cards]
        devices = " ".join(f"{word} {card} {{ name {name} }}" for word, card, name in zip(words, cards, NAMES, strict=False))
        return (
            f"unix {{ nodaemon cli-listen {folder}/cli.sock runtime-dir {folder} }}\ncpu {{ main-core {cores[0]}{listed} }}\n"
            + (f"dpdk {{ {devices} }}\n" if cards else "")
        )

    def tell(self, host: Host, control: str, socket: Path, lines: Sequence[str]) -> None:
        """Have the router run commands, one after the other."""
        host.run([control, "-s", str(socket)], text="\n".join(lines) + "\n", seconds=COMMANDS_S)

    def prepare(self, device: testbed.Space, ports: tuple[str, str]) -> None:
        """Set what this router needs of its ports on veth."""

    def rx_mode(self) -> str:
        """How it is told to wait for packets; empty where it is not told."""
        return self.campaign.testbed.rx_mode

    def waiting(self, names: tuple[str, str]) -> tuple[list[str], list[str]]:
        """Commands that say how ports wait for packets, before they are made and after."""
        mode = self.rx_mode()
        return ([f"set interface default rx-mode {mode}"] if mode else []), []

    def generator_text(self, of: generator.Threads, folder: Path) -> str:
        """The start-up configuration where its own generator is source and sink."""
        return generator.start_text(of, folder)

    @contextlib.contextmanager
    def generating(self, cell: Cell, folder: Path, program: str, control: str) -> Iterator[Bench]:
        """Start the router with its own packet generator as source and sink."""
        lines = [*scenario_commands(cell, generator.PORTS), *self.experiment(cell)]
        where = generator.threads(self.campaign, cell, alone=self.main_alone)
        assert not isinstance(where, str), where
        text = self.generator_text(where, folder)
        configured = generator.Configured(text, where, lines, self.tell)
        with generator.router(self.campaign, cell, folder, (program, control), configured) as (measurer, ask):
            facts = {"version": ask("show version").strip(), "start": text, "driver": "packet generator", "rx_mode": "polling"}
            yield Bench(
                measurer,
                {**facts, "cores": list(where.cores)},
                lambda: {name: ask(f"show {name}") for name in ("interface", "errors", "runtime", "threads")},
                lambda: runtime_readings(ask("show runtime")),
                # Each of its trials begins to count anew.
                lambda: None,
            )

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Start the router between the tester's ports."""
        program, control = self.site.program(self.program), self.site.program(self.control)
        assert program is not None
        assert control is not None
        if cell.link == "pg":
            with self.generating(cell, folder, program, control) as bench:
                yield bench
            return
        log = folder / "router.log"
        with contextlib.ExitStack() as stack:
            ground = stack.enter_context(self.site.ground(cell, folder))
            if cell.link == "veth":
                ground = replace(ground, drivers=(self.driver(), self.driver()))
            host, socket, conf = ground.device, ground.folder / "cli.sock", ground.folder / "startup.conf"
            host.run(["rm", "-f", str(socket)])
            cores = cores_of(self.campaign, cell)
            command = testbed.on_cores(cores, [program, "-c", str(conf)])
            ports, space = ("", ""), None
            if ground.wires is not None:
                wires = ground.wires
                command, ports, space = wires.device.command(command), wires.device_ports, wires.tester
                tester_ports = wire_ports(self.site, cell, wires)
                if cell.link == "veth":
                    # What the kernel does for the device's ports is the device's work.
                    pin_device(wires.device, ports, cores, cell)
                    self.prepare(wires.device, ports)
            else:
                tester_ports = memif_ports(cell, folder)
            cards = dpdk_devices(ground.drivers[0], ports)
            text = self.start_text(cell, ground.folder, cards)
            host.write(conf, text)
            made, names = interface_commands(cell, ports, ground)
            before, after = self.waiting(names)
            lines = [*before, *made, *after, *scenario_commands(cell, names), *self.experiment(cell)]
            life = stack.enter_context(contextlib.ExitStack())

            def ask(*words: str) -> str:
                return host.run([control, "-s", str(socket), *words])

            def bring_up() -> None:
                process = life.enter_context(host.running(command, log=log))
                wait_for(host, socket, process, what=self.program, log=log)
                self.tell(host, control, socket, lines)

            def reset() -> None:
                """End the router and start it anew: what it knew is gone."""
                life.close()
                host.run(["rm", "-f", str(socket)])
                bring_up()

            bring_up()
            measurer = make_tester(
                self.campaign, cell, folder, tester_ports, space, where=self.site, keep=stack, far=ground.far, reset=reset
            )
            check_connectivity(measurer)

            def forget() -> None:
                ask("clear", "runtime")

            forget()

            yield Bench(
                measurer,
                {
                    "version": ask("show", "version").strip(),
                    "start": text,
                    "cores": list(cores),
                    "driver": "memif" if cell.link == "memif" else ground.drivers[0],
                    "rx_mode": self.rx_mode() or "as it comes",
                },
                lambda: {name: ask("show", name) for name in ("interface", "errors", "runtime")},
                lambda: runtime_readings(ask("show", "runtime")),
                forget,
                ground.cores,
            )


VPP_VECTOR = 256
"""Packets of VPP's largest vector (VLIB_FRAME_SIZE)."""
WITHOUT_CARDS = "plugins { plugin dpdk_plugin.so { disable } }\nbuffers { page-size 4k }\n"
"""Of VPP's configuration without ports of DPDK: no DPDK, and no huge pages demanded."""


class FdioVpp(Quiver):
    """FD.io VPP's own binary, by the same commands, on the same cores, its ports waiting in the same way.

    Two threads of VPP do not share a core: where one worker and main would, VPP has no worker, and main forwards. Told
    ``workers 1`` it would put that on a core of its own choice, the tester's.
    """

    program, control = "vpp", "vppctl"
    main_alone = True

    def driver(self) -> str:
        """Packet sockets: not every build of VPP has AF_XDP."""
        return "af-packet"

    def prepare(self, device: testbed.Space, ports: tuple[str, str]) -> None:
        """Ports that work out checksums: without these and without segmentation, what VPP itself sends, such as ARP, is lost.

        Seen with VPP 26.06 on Linux 6.18; frames that it forwards have nothing that is left to the port.
        """
        for port in ports:
            device.run("ethtool", "-K", port, "tx", "on")

    def waiting(self, names: tuple[str, str]) -> tuple[list[str], list[str]]:
        """It has a command for ports that are there, none for those to come."""
        mode = self.rx_mode()
        return [], [f"set interface rx-mode {name} {mode}" for name in names] if mode else []

    def absent(self, cell: Cell) -> str | None:
        """As the project's own, but for what VPP fixes when it is built."""
        if reason := self.missing():
            return reason
        if cell.loops:
            return "VPP's loops are fixed when it is built"
        if cell.vector not in (0, VPP_VECTOR) and cell.link != "pg":
            return f"VPP's vectors have {VPP_VECTOR} packets at most, which is fixed when it is built"
        if cell.vector > VPP_VECTOR:
            return f"VPP's vectors have {VPP_VECTOR} packets at most"
        return super().absent(cell)

    def tell(self, host: Host, control: str, socket: Path, lines: Sequence[str]) -> None:
        """From a file: of what ``vppctl`` reads from its input it sends commands in pieces. An error says what was wrong."""
        file = socket.with_name("commands.cli")
        host.write(file, "\n".join(lines) + "\n")
        said = host.run([control, "-s", str(socket), "exec", str(file)], seconds=COMMANDS_S)
        if wrong := next((line for line in said.splitlines() if ": " in line or "`" in line), ""):
            raise DeviceError(f"vpp refused a command: {wrong.strip()}")

    def experiment(self, cell: Cell) -> list[str]:
        """Nothing: its vectors are those that the generator begins with."""
        return []

    def start_text(self, cell: Cell, folder: Path, cards: Sequence[str] = ()) -> str:
        """VPP's configuration: a worker that would share main's core is left out, and main forwards."""
        text = re.sub(r" workers [0-9]+ ", " ", super().start_text(cell, folder, cards))
        return text if cards else text + WITHOUT_CARDS

    def generator_text(self, of: generator.Threads, folder: Path) -> str:
        """The same for its own generator."""
        return super().generator_text(of, folder) + WITHOUT_CARDS
