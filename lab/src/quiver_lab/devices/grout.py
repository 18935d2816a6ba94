"""grout, DPDK's graph router: a worker polls the ports and runs DPDK's graph library, a control thread answers ``grcli``.

``scripts/build-grout`` builds it. It polls without a pause (``--poll-mode``) and has its memory on small pages
(``--test-mode``), as the other devices here. Vectors and bursts are those that it comes with.

It makes a TAP of each port's name in the kernel and gives it the port's addresses. So it has a network namespace of its own,
over memif, too. On veth the kernel of that namespace sees the frames as well: it forwards none, and answers for none of them.

::

    main thread ── control ──┐ core a                 one core: both on it
    worker ────── datapath ──┘ core b, or a           port left: memif or packet sockets (net_memif, net_af_packet)
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quiver_lab import profiles, testbed
from quiver_lab.campaign import Cell
from quiver_lab.devices.base import (
    Adapter,
    Bench,
    check_connectivity,
    cores_of,
    here_only,
    lab_absent,
    machine_absent,
    make_tester,
    wire_ports,
)
from quiver_lab.devices.linux import counters_of, pin_receive
from quiver_lab.devices.router import NAMES, PLACEMENTS, memif_ports
from quiver_lab.processes import CommandError, find, last_line, run, running, wait_for

PROGRAM, CONTROL = "grout", "grcli"
ANSWERS_S = 10.0
"""For how long it may take to answer once its socket is there."""
COMMANDS_S = 120.0
"""For how long it may take to do all that it is told at first."""
MANY_ROUTES = 65_000
"""Beyond them its table must be made larger: it has room for 65,536."""
SPARE_ROUTES = 1000
MOST_ROUTES = 300_000
"""Its memory has no room for a million."""
CONNECTIONS = 16_384
"""For how many its connection table has room unless it is told."""
FRAME_BYTES = 1920
"""What fits its buffers. Over memif DPDK copies frames in batches only if it is told that none is longer. Packet sockets of
DPDK's usual 2,048 it does not take at all; a block of places must be of whole places, and of whole pages."""
NAT_SUBNET = 23
"""Its NAT ties a subnet to one outside address: hosts of so long a prefix share one, so that half the lab's pool is used."""
SIDES = (profiles.LEFT, profiles.RIGHT)
OUT_OF_THE_WAY = (
    "echo 0 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv6/conf/all/forwarding; "
    "echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore"
)
"""Has a kernel forward nothing, and answer ARP for addresses of the port only that was asked."""


def policies() -> list[tuple[str, str]]:
    """Subnets of the hosts on the left, and the outside address of each."""
    first = ipaddress.IPv4Address(profiles.NAT_POOL[0])
    subnets = ipaddress.IPv4Network(profiles.LEFT.hosts4).subnets(new_prefix=NAT_SUBNET)
    return [(str(subnet), str(first + n)) for n, subnet in enumerate(subnets)]


def commands(cell: Cell, devices: Sequence[str]) -> list[str]:
    """What it is told, with DPDK's names of its two ports."""
    lines = [f"interface add port {name} devargs {device}" for name, device in zip(NAMES, devices, strict=True)]
    if cell.ip == 4 and cell.routes > MANY_ROUTES:
        # Its VRF is there from the first port on. Told when it starts, it would make IPv6's table as large, too.
        lines.append(f"interface set vrf main rib4-routes {cell.routes + SPARE_ROUTES}")
    for name, side in zip(NAMES, SIDES, strict=True):
        if cell.ip == 4:
            lines += [f"address add {side.device4}/24 iface {name}", f"route add {side.hosts4} via {side.tester4}"]
        else:
            lines += [f"address add {side.device6}/64 iface {name}", f"route add {side.hosts6} via {side.tester6}"]
    if cell.ip == 4:
        lines += [f"route add {prefix} via {profiles.RIGHT.tester4}" for prefix in profiles.extra_routes(cell.routes)]
    if cell.operation == "nat":
        # Room for twice as many as there are: a worker keeps some free entries to itself.
        if 2 * cell.sources > CONNECTIONS:
            lines.append(f"conntrack config set max {2 * cell.sources}")
        for subnet, outside in policies():
            lines += [
                f"address add {outside}/32 iface {NAMES[1]}",
                f"snat44 add interface {NAMES[1]} subnet {subnet} replace {outside}",
            ]
    return lines


def readings(text: str) -> dict[str, float | None]:
    """Packets a batch, and clocks a packet of each node, from its statistics (``grcli -j stats``)."""
    # The first row is no node: it is what the loop itself took.
    nodes = [node for node in json.loads(text) if node["packets"] > 0 and node["node"] != "overhead"]
    # What a few packets went through beside the load tells nothing about it.
    floor = max((node["packets"] for node in nodes), default=0) / 100
    values: dict[str, float | None] = {
        f"node_{node['node']}_clocks": float(node["cycles_pkt"]) for node in nodes if node["packets"] >= floor
    }
    for node in nodes:
        if node["node"] == "eth_input":
            values["vector_mean_packets"] = float(node["pkts_batch"])
    return values


class Grout(Adapter):
    """The router between two ports."""

    def absent(self, cell: Cell) -> str | None:
        """Programs, cores, and what the cell asks for."""
        if reason := here_only(self.campaign):
            return reason
        for name in (PROGRAM, CONTROL):
            if find(name, self.campaign.testbed.binaries) is None:
                return f"{name} is not installed (scripts/build-grout; testbed.binaries or {name.upper()} names it)"
        if cell.link not in ("veth", "memif"):
            return "it needs a link: veth or memif"
        if cell.operation not in ("one-way", "bidirectional", "nat"):
            return f"the lab does not set grout up for {cell.operation}"
        if cell.operation == "nat" and cell.ip == 6:
            return "there is no NAT of IPv6"
        if cell.vector or cell.loops:
            return "the lab leaves grout's vectors as they are, and its loops are fixed when it is built"
        if cell.ip == 4 and cell.routes > MOST_ROUTES:
            return f"grout is given no more than {MOST_ROUTES} further routes: a million do not fit its memory"
        if cell.placement == "2-threads-of-one-core":
            return "which cores are threads of one is not told by testbed.dut_cores"
        workers, need = PLACEMENTS.get(cell.placement, (cell.workers, 1))
        if workers > 1:
            return "each worker of grout sends from a queue of its own, and the lab's ports have one"
        if reason := machine_absent(self.campaign, cell):
            return reason
        if need > (have := len(cores_of(self.campaign, cell))):
            return f"placement {cell.placement} needs {need} cores; testbed.dut_cores gives {have}"
        if cell.link == "veth" and find("ethtool", {}) is None:
            return "ethtool is not installed"
        if not Path("/dev/net/tun").exists():
            return "grout needs the kernel's TAP (/dev/net/tun)"
        return lab_absent(self.campaign, cell, self.site)

    def cores(self, cell: Cell) -> tuple[int, ...]:
        """Its cores: control thread and worker on one each, or both on one."""
        workers, most = PLACEMENTS.get(cell.placement, (cell.workers, 2))
        return cores_of(self.campaign, cell)[: most if workers else 1]

    def arguments(self, cell: Cell, folder: Path) -> list[str]:
        """The program's arguments, kept to its cores: it puts the control thread on the lower one, the worker on the other."""
        program = find(PROGRAM, self.campaign.testbed.binaries)
        assert program is not None
        # Its HTTP server of metrics is off.
        words = [program, "--poll-mode", "--test-mode", "--metrics", ":0", "--socket", str(folder / "cli.sock")]
        return testbed.on_cores(self.cores(cell), words)

    @staticmethod
    def devices(cell: Cell, folder: Path, ports: tuple[str, str]) -> list[str]:
        """DPDK's names of its ports."""
        if cell.link == "memif":
            sockets = [folder / f"{name}.sock" for name in NAMES]
            return [
                f"net_memif{n},role=server,id=0,socket={s},socket-abstract=no,bsize={FRAME_BYTES}"
                for n, s in enumerate(sockets)
            ]
        return [
            f"net_af_packet{n},iface={port},framesz={FRAME_BYTES},blocksz={32 * FRAME_BYTES}" for n, port in enumerate(ports)
        ]

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Start grout between the tester's ports."""
        program, control = (find(name, self.campaign.testbed.binaries) for name in (PROGRAM, CONTROL))
        assert program is not None
        assert control is not None
        socket, log = folder / "cli.sock", folder / "grout.log"
        cores = self.cores(cell)
        with contextlib.ExitStack() as stack:
            ports, space = ("", ""), None
            inside: testbed.Space
            if cell.link == "veth":
                wires = stack.enter_context(testbed.veth_pairs())
                ports, space, inside = wires.device_ports, wires.tester, wires.device
                tester_ports = wire_ports(self.site, cell, wires)
                for port in ports:
                    pin_receive(inside, port, cores)
            else:
                inside = stack.enter_context(testbed.namespace())
                tester_ports = memif_ports(cell, folder)
            inside.run("sh", "-c", OUT_OF_THE_WAY)
            arguments = self.arguments(cell, folder)
            version = run([program, "--version"]).strip()
            process = stack.enter_context(running(inside.command(arguments), log=log))
            wait_for(socket, process, what=PROGRAM, log=log)

            def ask(*words: str) -> str:
                return run([control, "-s", str(socket), *words])

            # The socket is there a moment before it is listened to.
            until = time.monotonic() + ANSWERS_S
            while True:
                try:
                    affinity = ask("affinity", "cpus", "show").strip()
                    break
                except CommandError:
                    if process.poll() is not None or time.monotonic() > until:
                        raise
                    time.sleep(0.02)

            self.tell(control, socket, commands(cell, self.devices(cell, folder, ports)), log)
            measurer = make_tester(self.campaign, cell, folder, tester_ports, space, where=self.site, keep=stack)
            check_connectivity(measurer)

            def forget() -> None:
                ask("stats", "reset")

            forget()

            def telemetry() -> dict[str, Any]:
                asked = {"stats": ("stats",), "hardware": ("stats", "show", "hardware"), "interface": ("interface", "stats")}
                told = {name: ask(*words) for name, words in asked.items()}
                return told | (counters_of(inside) if cell.link == "veth" else {})

            facts = {
                "version": version,
                "arguments": " ".join(arguments),
                "affinity": affinity,
                "graph": ask("graph", "config", "show").strip(),
                "cores": list(cores),
                "driver": "memif" if cell.link == "memif" else "af-packet",
                "rx_mode": "polling",
            }
            yield Bench(measurer, facts, telemetry, lambda: readings(ask("-j", "stats")), forget)

    @staticmethod
    def tell(control: str, socket: Path, lines: Sequence[str], log: Path) -> None:
        """Have it run commands, one after the other. What it refuses says why in its log, not in its answer."""
        file = socket.with_name("commands.cli")
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            run([control, "-e", "-x", "-s", str(socket), "-f", str(file)], seconds=COMMANDS_S)
        except CommandError as error:
            said = last_line(log.read_text(encoding="utf-8", errors="replace"))
            raise CommandError(f"grout refused a command: {error} ({said})") from error
