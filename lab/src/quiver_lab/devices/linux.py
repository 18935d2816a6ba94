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
from quiver_lab.devices.base import Adapter, Bench, check_connectivity, lab_absent, make_tester
from quiver_lab.processes import CommandError, find


def nat_rules(outside: str) -> str:
    """Source NAT to the pool, for what leaves by the right port."""
    first, last = profiles.NAT_POOL
    return (
        "table ip lab {\n chain post {\n  type nat hook postrouting priority srcnat;\n"
        f"  oifname {outside} ip saddr {profiles.LEFT.hosts4} snat to {first}-{last}\n }}\n}}\n"
    )


def _napi_threads(port: str, proc: Path = Path("/proc")) -> list[int]:
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
        threads = _napi_threads(port)
        for pid in threads:
            os.sched_setaffinity(pid, cores)
        if threads:
            return "threaded NAPI"
    space.run("sh", "-c", f"echo {mask} > /sys/class/net/{port}/queues/rx-0/rps_cpus")
    return "receive packet steering"


class Linux(Adapter):
    """The kernel's own forwarding."""

    def absent(self, cell: Cell) -> str | None:
        """Tools, rights, and what the cell asks for."""
        if cell.link != "veth":
            return "the kernel has no memif"
        if cell.operation == "cross-connect":
            return "the kernel's forwarding has no cross-connect"
        if cell.operation == "nat" and cell.ip == 6:
            return "there is no NAT of IPv6"
        if find("ethtool", {}) is None:
            return "ethtool is not installed"
        if cell.operation == "nat" and find("nft", {}) is None:
            return "nftables is not installed"
        if cell.workers > len(self.campaign.testbed.dut_cores):
            return f"{cell.workers} cores were asked for; testbed.dut_cores gives {len(self.campaign.testbed.dut_cores)}"
        return lab_absent(self.campaign, cell)

    @contextlib.contextmanager
    def bench(self, cell: Cell, folder: Path) -> Iterator[Bench]:
        """Configure a namespace as a router."""
        cores = self.campaign.testbed.dut_cores[: max(1, cell.workers)]
        with testbed.veth_pairs() as wires:
            device, ports = wires.device, wires.device_ports
            device.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
            batch = []
            for port, side in zip(ports, (profiles.LEFT, profiles.RIGHT), strict=True):
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
            batch += [f"route add {p} via {profiles.RIGHT.tester4}" for p in profiles.extra_routes(cell.routes)]
            device.run("ip", "-batch", "-", text="\n".join(batch) + "\n")
            how = [pin_receive(device, port, cores) for port in ports]
            if cell.operation == "nat":
                device.run("nft", "-f", "-", text=nat_rules(ports[1]))
            tester_ports = (f"af-packet:{wires.tester_ports[0]}", f"af-packet:{wires.tester_ports[1]}")
            measurer = make_tester(self.campaign, cell, folder, tester_ports, wires.tester)
            check_connectivity(measurer)

            def telemetry() -> dict[str, Any]:
                return {"interfaces": json.loads(device.run("ip", "-s", "-j", "link", "show"))}

            yield Bench(measurer, {"version": os.uname().release, "receive": how[0], "cores": list(cores)}, telemetry)
