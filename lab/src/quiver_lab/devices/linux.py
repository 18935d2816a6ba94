"""The Linux kernel in a namespace: forwarding and source NAT, its work pinned to the device's cores.

Left alone, a veth's receiver runs where its sender runs: the kernel's forwarding would be charged to the tester. So the
device's ends get NAPI (by GRO), each NAPI a thread, and the threads are pinned; where the kernel has no threaded NAPI, receive
packet steering moves the work instead. Which of both was used stands in the result.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quiver_lab import profiles, testbed
from quiver_lab.campaign import Cell
from quiver_lab.devices.base import (
    Adapter,
    Bench,
    check_connectivity,
    cores_of,
    lab_absent,
    machine_absent,
    make_tester,
    veth_tester_ports,
)
from quiver_lab.processes import CommandError, find


def nat_rules(outside: str) -> str:
    """Source NAT to the pool, for what leaves by the right port."""
    first, last = profiles.NAT_POOL
    return (
        "table ip lab {\n chain post {\n  type nat hook postrouting priority srcnat;\n"
        f"  oifname {outside} ip saddr {profiles.LEFT.hosts4} snat to {first}-{last}\n }}\n}}\n"
    )


def napi_threads(port: str, proc: Path = Path("/proc")) -> list[int]:
    """The kernel threads that poll a port."""
    found = []
    for comm in proc.glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text(encoding="ascii", errors="replace").startswith(f"napi/{port}-"):
                found.append(int(comm.parent.name))
    return found


def pin_receive(space: testbed.Namespace, port: str, cores: tuple[int, ...]) -> str:
    """Make a port's receive work run on ``cores``; says how."""
    mask = f"{sum(1 << c for c in cores):x}"
    space.run("ethtool", "-K", port, "gro", "on")
    with contextlib.suppress(CommandError):
        space.run("sh", "-c", f"echo 1 > /sys/class/net/{port}/threaded")
        threads = napi_threads(port)
        for pid in threads:
            os.sched_setaffinity(pid, cores)
        if threads:
            return "threaded NAPI"
    space.run("sh", "-c", f"echo {mask} > /sys/class/net/{port}/queues/rx-0/rps_cpus")
    return "receive packet steering"


def link_address(space: testbed.Namespace, port: str) -> str:
    """A port's link address."""
    (link,) = json.loads(space.run("ip", "-j", "link", "show", "dev", port))
    return str(link["address"])


def counters_of(device: testbed.Namespace) -> dict[str, Any]:
    """What the kernel counts of a namespace's ports."""
    return {"interfaces": json.loads(device.run("ip", "-s", "-j", "link", "show"))}


def configure(device: testbed.Namespace, ports: tuple[str, str], cell: Cell) -> None:
    """Addresses and routes of a router, or a bridge."""
    device.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
    batch = []
    if cell.operation == "bridge":
        batch += ["link add br0 type bridge", *(f"link set {port} master br0" for port in ports), "link set br0 up"]
    for port, side in zip(ports, (profiles.LEFT, profiles.RIGHT), strict=True):
        if cell.operation == "bridge":
            continue
        if cell.ip == 4:
            batch += [
                f"addr add {side.device4}/24 dev {port}",
                f"route add {side.hosts4} via {side.tester4} dev {port}",
            ]
        else:
            batch += [
                f"addr add {side.device6}/64 dev {port} nodad",
                f"route add {side.hosts6} via {side.tester6} dev {port}",
            ]
    # The further routes are IPv4's.
    if cell.operation != "bridge" and cell.ip == 4:
        batch += [f"route add {p} via {profiles.RIGHT.tester4}" for p in profiles.extra_routes(cell.routes)]
    device.run("ip", "-batch", "-", text="\n".join(batch) + "\n")


class Linux(Adapter):
    """The kernel's own forwarding."""

    def absent(self, cell: Cell) -> str | None:
        """Tools, rights, and what the cell asks for."""
        if cell.link != "veth":
            return "the kernel has no memif" if cell.link == "memif" else "the kernel is measured on veth"
        if cell.operation == "cross-connect":
            return "the kernel's forwarding has no cross-connect"
        if cell.operation == "mix":
            return "the lab does not set the kernel up for MIX"
        if cell.vector or cell.loops or cell.placement:
            return "the kernel has no vectors, loops or main thread to set"
        if cell.operation == "nat" and cell.ip == 6:
            return "there is no NAT of IPv6"
        if find("ethtool", {}) is None:
            return "ethtool is not installed"
        if cell.operation == "nat" and find("nft", {}) is None:
            return "nftables is not installed"
        if reason := machine_absent(self.campaign, cell):
            return reason
        if cell.workers > (have := len(cores_of(self.campaign, cell))):
            return f"{cell.workers} cores were asked for; testbed.dut_cores gives {have}"
        return lab_absent(self.campaign, cell, resets="a kernel is not reset without its machine")

    def tune(self, wires: testbed.Wires, cell: Cell, cores: tuple[int, ...], folder: Path) -> dict[str, Any]:
        """What a variant sets beyond that; facts of the result."""
        return {}

    def counters(self, device: testbed.Namespace, ports: tuple[str, str]) -> dict[str, Any]:
        """What the device counts."""
        return counters_of(device)

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Configure a namespace as a router."""
        cores = cores_of(self.campaign, cell)[: max(1, cell.workers)]
        with testbed.veth_pairs() as wires:
            device, ports = wires.device, wires.device_ports
            configure(device, ports, cell)
            how = [pin_receive(device, port, cores) for port in ports]
            if cell.operation == "nat":
                device.run("nft", "-f", "-", text=nat_rules(ports[1]))
            settings = self.tune(wires, cell, cores, folder)
            measurer = make_tester(self.campaign, cell, folder, veth_tester_ports(self.campaign, wires), wires.tester)
            check_connectivity(measurer)

            found = {"version": os.uname().release, "receive": how[0], "cores": list(cores), **settings}
            yield Bench(measurer, found, lambda: self.counters(device, ports))
