"""DPDK's example ``l3fwd``: a lookup, a hop less (of IPv4 only), and the frame leaves; no neighbours, no control plane.

DPDK's packages do not have it as a program: build ``examples/l3fwd`` of its source, and install it as ``dpdk-l3fwd`` or name it
in ``testbed.binaries``. Next hops are given when it starts. It answers for no address: on veth the kernel of the device's
namespace answers ARP and solicitations (it forwards nothing), over memif the tester is told the link addresses.

Versions without ``--relax-rx-offload`` (22.11 is one) demand that ports check checksums, which virtual devices do not; they end
at once, and say so.
"""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quiver_lab import profiles, testbed
from quiver_lab.campaign import Cell
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
from quiver_lab.devices.linux import counters_of, link_address, pin_receive
from quiver_lab.processes import find, last_line, running
from quiver_lab.twohosts import dpdk_devices

PROGRAM = "dpdk-l3fwd"
OWN_MACS = ("02:00:00:00:02:01", "02:00:00:00:02:02")
"""Of its memif ports."""
LPM_ROUTES = 1024
"""For how many its lookup by longest prefix is built."""
MOST_ROUTES = 65_535
"""The same of its other table (``--lookup=fib``)."""
SIDES = (profiles.LEFT, profiles.RIGHT)


def rules(cell: Cell) -> tuple[list[str], list[str]]:
    """Its routes, IPv4 and IPv6: ``R`` and a prefix, then a port's number. Addresses of IPv6 are written out."""
    four = [f"R{side.hosts4} {n}" for n, side in enumerate(SIDES)]
    if cell.ip == 4:
        four += [f"R{prefix} 1" for prefix in profiles.extra_routes(cell.routes)]
    return four, [f"R{ipaddress.IPv6Network(side.hosts6).exploded} {n}" for n, side in enumerate(SIDES)]


def relaxes(program: str) -> bool:
    """Whether this build can do without checksums checked by its ports; it has no way to be asked."""
    return b"relax-rx-offload" in Path(program).read_bytes()


class L3fwd(Adapter):
    """The example between two ports."""

    def absent(self, cell: Cell) -> str | None:
        """Program, cores, and what the cell asks for."""
        if reason := here_only(self.campaign):
            return reason
        if find(PROGRAM, self.campaign.testbed.binaries) is None:
            return f"{PROGRAM} is not installed (DPDK's example l3fwd; testbed.binaries or DPDK_L3FWD names it)"
        if cell.link not in ("veth", "memif"):
            return "it needs a link: veth or memif"
        if cell.operation not in ("one-way", "bidirectional"):
            return "l3fwd forwards by routes only"
        if cell.vector or cell.loops:
            return "l3fwd's vectors and loops are fixed when it is built"
        if cell.placement in ("main+1-worker", "2-threads-of-one-core"):
            return "l3fwd has no main thread beside those that forward, and the lab pairs no threads of a core"
        if cell.ip == 4 and cell.routes + len(SIDES) > MOST_ROUTES:
            return f"l3fwd has room for {MOST_ROUTES} routes"
        if reason := machine_absent(self.campaign, cell):
            return reason
        have, need = len(cores_of(self.campaign, cell)), self.threads(cell)
        if need > len(SIDES):
            return "two ports of one queue have work for two cores"
        if have < need:
            return f"{need} cores were asked for; testbed.dut_cores gives {have}"
        if need > 1 and (cell.link == "veth" or cell.operation == "bidirectional"):
            return "on ports of one queue two threads of l3fwd cannot both send: memif, one way"
        if cell.link == "veth" and find("ethtool", {}) is None:
            return "ethtool is not installed"
        return lab_absent(self.campaign, cell, self.site)

    @staticmethod
    def threads(cell: Cell) -> int:
        """Threads that forward, one a core."""
        return {"single-core": 1, "2-cores": 2}.get(cell.placement, max(1, cell.workers))

    def arguments(self, cell: Cell, folder: Path, ports: tuple[str, str], peers: tuple[str, str]) -> list[str]:
        """The program's arguments, and its files of routes."""
        program = find(PROGRAM, self.campaign.testbed.binaries)
        assert program is not None
        threads = self.threads(cell)
        cores = cores_of(self.campaign, cell)[:threads]
        files = []
        for family, lines in zip((4, 6), rules(cell), strict=True):
            file = folder / f"routes{family}.cfg"
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            files.append(f"--rule_ipv{family}={file}")
        if cell.link == "memif":
            devices = [
                f"--vdev=net_memif{n},role=server,id=0,socket={folder}/{port}.sock,socket-abstract=no,mac={mac}"
                for n, (port, mac) in enumerate(zip(ports, OWN_MACS, strict=True))
            ]
        else:
            devices = [f"--vdev={name}" for name in dpdk_devices("net_af_packet", ports)]
        queues = ",".join(f"({port},0,{port % threads})" for port in range(len(SIDES)))
        many = cell.ip == 4 and cell.routes + len(SIDES) > LPM_ROUTES
        return [
            "--no-huge", "-m", "512", "--no-pci", "--no-telemetry", f"--file-prefix=lab{folder.name}",
            f"--lcores={','.join(f'{n}@{core}' for n, core in enumerate(cores))}", *devices,
            "--", "-p", "0x3", "-P", "--no-numa", "--parse-ptype", f"--lookup={'fib' if many else 'lpm'}",
            f"--config={queues}", *files, *(f"--eth-dest={n},{mac}" for n, mac in enumerate(peers)),
            *(["--relax-rx-offload"] if relaxes(program) else []),
        ]  # fmt: skip

    @staticmethod
    def answer(space: testbed.Space, ports: tuple[str, str], cell: Cell) -> None:
        """Have the kernel of a namespace answer for the addresses of l3fwd's ports, and forward nothing."""
        space.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv6/conf/all/forwarding")
        for port, side in zip(ports, SIDES, strict=True):
            address = [f"{side.device4}/24"] if cell.ip == 4 else [f"{side.device6}/64", "nodad"]
            space.run("ip", "address", "add", address[0], "dev", port, *address[1:])

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Start l3fwd between the tester's ports."""
        program = find(PROGRAM, self.campaign.testbed.binaries)
        assert program is not None
        log = folder / "l3fwd.log"
        cores = cores_of(self.campaign, cell)[: self.threads(cell)]
        with contextlib.ExitStack() as stack:
            ports, peers = ("left", "right"), profiles.TESTER_MACS
            space, inside = None, None
            command: Sequence[str] = [program]
            if cell.link == "veth":
                wires = stack.enter_context(testbed.veth_pairs())
                ports, space, inside = wires.device_ports, wires.tester, wires.device
                a, b = wires.tester_ports
                peers = (link_address(wires.tester, a), link_address(wires.tester, b))
                tester_ports = wire_ports(self.site, cell, wires)
                self.answer(inside, ports, cell)
                for port in ports:
                    pin_receive(inside, port, cores)
                command = inside.command(command)
            else:
                left, right = (
                    f"memif:socket={folder}/{name}.sock,id=0,role=client,ring={testbed.MEMIF_RING},mac={peer},dst-mac={own}"
                    for name, peer, own in zip(ports, peers, OWN_MACS, strict=True)
                )
                tester_ports = (left, right)
            arguments = self.arguments(cell, folder, ports, peers)
            process = stack.enter_context(running([*command, *arguments], log=log))
            until = time.monotonic() + 60
            # What each thread says of its queues is the last before its loop.
            while "L3FWD:  -- lcoreid=" not in (said := log.read_text(encoding="utf-8", errors="replace")):
                if process.poll() is not None:
                    cause = next((line.partition("Cause: ")[2] for line in said.splitlines() if "Cause: " in line), "")
                    raise DeviceError(f"l3fwd ended at once: {cause or last_line(said)}")
                if time.monotonic() > until:
                    raise DeviceError("l3fwd did not begin to forward within 60 s")
                time.sleep(0.05)
            measurer = make_tester(self.campaign, cell, folder, tester_ports, space, where=self.site, keep=stack)
            check_connectivity(measurer)

            def telemetry() -> dict[str, Any]:
                # It counts nothing itself.
                return counters_of(inside) if inside else {}

            facts = {"version": Path(program).name, "arguments": " ".join(arguments), "cores": list(cores)}
            yield Bench(measurer, facts, telemetry)
